"""What an incident cost, from what its clients saw. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from failsoft.demo.answers import FALLBACKS, Seen

_BY_MODEL = frozenset({"primary", "canary"})


@dataclass(frozen=True, kw_only=True)
class IncidentNumbers:
    """Times are in milliseconds after the first bad answer, as clients saw them.

    None: it did not happen, or the model had been left before for another cause, such as a machine too busy for it.
    """

    first_bad_s: float | None
    """When the first request was sent whose model answer was bad; client's monotonic time."""
    until_first_switch_ms: float | None
    """Until the first answer under the degraded plan."""
    until_last_replica_ms: float | None
    """Until the last answer under the old plan had arrived, and at least one under the new."""
    model_answers_let_through: int
    """Answers of the broken model that reached users after the first bad one."""
    wrong_let_through: int
    """Those among them that were wrong."""
    replaced_before_switch: int
    """Bad answers that the single-answer cut-off replaced before the trip."""


def incident_numbers(seen: Sequence[Seen], *, broken_at_s: float) -> IncidentNumbers:
    """Sum up the incident that began when the model was broken at ``broken_at_s``.

    A *bad answer* is one that a net replaced under the old plan, or a wrong one of the model itself.
    """
    after = sorted((one for one in seen if one.sent_s >= broken_at_s and not one.lost), key=lambda one: one.sent_s)
    first = next((one for one in after if _bad(one)), None)
    degraded = [one for one in after if one.stage == "degraded"]
    left_before = first is not None and any(_arrived_s(one) < _arrived_s(first) for one in degraded)
    if first is None or not degraded or left_before:
        return IncidentNumbers(
            first_bad_s=first.sent_s if first else None,
            until_first_switch_ms=None,
            until_last_replica_ms=None,
            model_answers_let_through=sum(one.source in _BY_MODEL for one in after),
            wrong_let_through=sum(one.source in _BY_MODEL and not one.right for one in after),
            replaced_before_switch=0,
        )
    trip_epoch = min(one.epoch for one in degraded if one.epoch is not None)
    old = [one for one in after if one.sent_s >= first.sent_s and one.stage != "degraded" and _older(one, trip_epoch)]
    through = [one for one in old if one.source in _BY_MODEL]
    first_switch_s = min(_arrived_s(one) for one in degraded)
    last_switch_s = max([first_switch_s, *(_arrived_s(one) for one in old)])
    return IncidentNumbers(
        first_bad_s=first.sent_s,
        until_first_switch_ms=(first_switch_s - _arrived_s(first)) * 1000,
        until_last_replica_ms=(last_switch_s - _arrived_s(first)) * 1000,
        model_answers_let_through=len(through),
        wrong_let_through=sum(not one.right for one in through),
        replaced_before_switch=sum(one.source in FALLBACKS for one in old),
    )


def _bad(one: Seen) -> bool:
    replaced = one.source in FALLBACKS and bool(one.degrade_reason) and one.stage != "degraded"
    return replaced or (one.source in _BY_MODEL and not one.right)


def _older(one: Seen, epoch: int) -> bool:
    return one.epoch is not None and one.epoch <= epoch


def _arrived_s(one: Seen) -> float:
    return one.sent_s + one.latency_ms / 1000
