"""The home's ``alerts.toml``: who is told of which events, and which alerts may do what. Refused whole, in a sentence.

::

    [[send]]
    name = "on-call"
    to = "env:SLACK_URL"          # or an address; in the environment it is in no file and no log
    form = "slack"                # or "json"
    kinds = ["gateway_tripped", "run_stopped"]   # without: what wants a person
    again_after = "10m"           # the same kind of the same subject again within it is counted, and told later

    [[receive]]
    alert = "FailsoftDropRateHigh"   # its name in Alertmanager
    action = "stop_run"              # save and leave; the run is the alert's label "run", or: run = "first"

    [[receive]]
    alert = "FailsoftErrorBudgetBurn"
    action = "degrade"
    for = "30m"
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from failsoft.artifacts.home import refuse_run_name
from failsoft.errors import ConfigError
from failsoft.health.ledger import Side
from failsoft.health.toml_object import toml_object

FILE_NAME = "alerts.toml"
WANT_A_PERSON = frozenset(
    {
        "attempt_failed",
        "checkpoint_mirror_failed",
        "checkpoint_quarantined",
        "controller_absent",
        "controller_duty_failed",
        "drop_rate_warning",
        "gateway_tripped",
        "hang",
        "health_not_armed",
        "release_refused",
        "remote_unreachable",
        "run_stopped",
        "stage_move",
        "storage_unfit",
        "trial_held",
    }
)
"""Kinds of events that are sent when a target names none."""
_ENVIRONMENT = "env:"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_FORCE_S = 30 * 86_400.0
"""What the gateway's route takes; longer, and the remedy would be refused on the night it is needed."""
_Kind = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
_Duration = Annotated[str, Field(pattern=r"^\d+(\.\d+)?[smhd]$")]


class Form(StrEnum):
    """How a message is written."""

    JSON = "json"
    SLACK = "slack"


class Action(StrEnum):
    """What an alert may do. There is no more than this."""

    DEGRADE = "degrade"
    """Hold the model back for everyone, for a time."""
    STOP_RUN = "stop_run"
    """Tell a run to save after its present step and leave, as ``failsoft preempt`` does."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Target(_Entry):
    """Somebody who is told of events."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,49}$")]
    to: Annotated[str, Field(min_length=1, max_length=2000)]
    form: Form = Form.JSON
    kinds: Annotated[tuple[_Kind, ...], Field(min_length=1)] = tuple(sorted(WANT_A_PERSON))
    sides: Annotated[tuple[Side, ...], Field(min_length=1)] = tuple(Side)
    again_after: _Duration = "10m"

    @property
    def again_after_s(self) -> float:
        """Seconds in which the same kind of the same subject is told once."""
        return _seconds(self.again_after)

    def address(self, environment: Mapping[str, str] = os.environ) -> str:
        """Where to send.

        Raises:
            ConfigError: the environment has none, or it is no address that keeps what is sent to itself.
        """
        variable = self.to.removeprefix(_ENVIRONMENT)
        address = self.to if variable == self.to else environment.get(variable, "")
        if not address:
            raise ConfigError(f"target {self.name}: ${variable} is not set; export it with the address to send to")
        if not _keeps_to_itself(address):  # nothing of it in the words: all of it may be a secret
            raise ConfigError(
                f"target {self.name}: its address is none that this sends to; use https://HOST/…, or http:// on this "
                "machine, without spaces or a line's end"
            )
        return address


class Rule(_Entry):
    """One alert, and what it may do."""

    alert: Annotated[str, Field(min_length=1, max_length=200)]
    action: Action
    run: str | None = None
    for_: _Duration = Field(default="30m", alias="for")

    @property
    def for_s(self) -> float:
        """Seconds that a ``degrade`` lasts."""
        return _seconds(self.for_)

    @field_validator("run")
    @classmethod
    def _is_a_name(cls, run: str | None) -> str | None:
        if run is not None:
            refuse_run_name(run)
        return run

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        if not 0.0 < self.for_s <= _LONGEST_FORCE_S:
            raise ValueError(f"for is {self.for_!r}; use more than 0s and at most 30d (30m suits)")
        idle = "run" if self.action is Action.DEGRADE else "for_"
        if idle in self.model_fields_set:
            raise ValueError(f"{self.action} has no use for '{idle.rstrip('_')}'; leave it out")
        return self


class AlertSettings(_Entry):
    """All of the file. Empty: nobody is told, and no alert may do anything."""

    send: tuple[Target, ...] = ()
    receive: tuple[Rule, ...] = ()

    @model_validator(mode="after")
    def _names_are_single(self) -> Self:
        for what, names in (
            ("send", [target.name for target in self.send]),
            ("receive", [rule.alert for rule in self.receive]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"[[{what}]] has {', '.join(twice)} twice")
        return self


def read_settings(root: Path) -> AlertSettings:
    """The settings of the home at ``root``; empty without a file.

    Raises:
        ConfigError: the file can't be read, or something in it can't be meant; says where and what. Values of ``to``,
            which may be secrets, are not in the message.
    """
    path = root / FILE_NAME
    try:
        body: dict[str, Any] = toml_object(path.read_text("utf-8"))
    except FileNotFoundError:
        return AlertSettings()
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} can't be read ({error}); it is TOML with [[send]] and [[receive]]") from error
    try:
        return AlertSettings.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(f"{path}: {where}: {first['msg']}; see the head of failsoft/alerts/settings.py") from None


def _keeps_to_itself(address: str) -> bool:
    if not address.isprintable() or " " in address:  # a line's end at the end of a variable is the usual one
        return False
    try:
        parts = urlsplit(address)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK))


def _seconds(text: str) -> float:
    return float(text[:-1]) * _UNITS_S[text[-1]]
