"""What Alertmanager's webhook asks for, and what of it is allowed. Pure; the routes act.

Source of the form: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config (version 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from failsoft.alerts.settings import Action, Rule
from failsoft.artifacts.home import refuse_run_name
from failsoft.errors import ConfigError

MAX_ALERTS = 500
_LONGEST_WHY = 500
"""What the gateway's routes for operators take."""
_Labels = dict[str, Annotated[str, Field(max_length=10_000)]]


class Alert(BaseModel):
    """One alert of a notice. Fields that nothing here needs are passed over."""

    model_config = ConfigDict(extra="ignore")
    status: Literal["firing", "resolved"]
    labels: _Labels = Field(default_factory=dict)
    annotations: _Labels = Field(default_factory=dict)
    fingerprint: str = Field(default="", max_length=200)


class Notice(BaseModel):
    """What Alertmanager posts."""

    model_config = ConfigDict(extra="ignore")
    alerts: Annotated[list[Alert], Field(max_length=MAX_ALERTS)]


@dataclass(frozen=True, kw_only=True)
class Order:
    """Something to do because of an alert."""

    action: Action
    why: str
    run: str | None = None
    for_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was made of one alert; shown to whoever sent it."""

    alert: str
    said: str
    order: Order | None = None


def orders_of(notice: Notice, rules: Sequence[Rule]) -> list[Answer]:
    """One answer for each alert, in their order. Only a firing alert that a rule names orders anything."""
    by_name = {rule.alert: rule for rule in rules}
    return [_answer(alert, by_name.get(alert.labels.get("alertname", ""))) for alert in notice.alerts]


def _answer(alert: Alert, rule: Rule | None) -> Answer:
    name = alert.labels.get("alertname", "")[:200]
    if rule is None:
        return Answer(alert=name, said="no rule of alerts.toml names it; nothing is done")
    if alert.status != "firing":
        return Answer(alert=name, said="it is over; what it began ends by itself")
    said = alert.annotations.get("summary", "").strip()[:300]
    why = (f"alert {name}: {said}" if said else f"alert {name}")[:_LONGEST_WHY]
    if rule.action is Action.DEGRADE:
        return Answer(alert=name, said="degrade", order=Order(action=rule.action, why=why, for_s=rule.for_s))
    run = rule.run or alert.labels.get("run", "")
    try:
        refuse_run_name(run)
    except ConfigError:
        return Answer(alert=name, said="it has no label 'run' that names one, and its rule names none; nothing is done")
    return Answer(alert=name, said="stop_run", order=Order(action=rule.action, why=why, run=run))
