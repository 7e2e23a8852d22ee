"""What is known about the subject and its stand-in under the current stage, gathered from the gateways' reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from failsoft.errors import ConfigError
from failsoft.health.monitor import BAD, SILENT, HealthMonitor, HealthPolicy
from failsoft.health.sequential import Tally
from failsoft.health.window import Outcome
from failsoft.serving.plan import Arm

_NOTHING = Tally(bad=0, total=0)
_MAX_GATEWAYS = 4096


@dataclass(frozen=True, kw_only=True)
class OutcomeBatch:
    """How a gateway's calls of one arm ended between two reports. Counts suffice: order inside a batch is unknown."""

    gateway: str
    sequence: int
    """Grows with every batch of a gateway. A batch may arrive twice; it counts once."""
    epoch: int
    """The plan under which the calls were made."""
    arm: Arm
    mirrored: bool
    outcomes: Mapping[Outcome, int]
    latency_ms: float = 0.0
    """Sum over all calls."""
    agree: int = 0
    """Mirrored answers with the live answer's intent …"""
    compared: int = 0
    """… of so many compared."""

    def __post_init__(self) -> None:
        """Refuse counts below zero, which would cancel evidence."""
        if any(count < 0 for count in self.outcomes.values()) or not 0 <= self.agree <= self.compared:
            raise ConfigError(f"batch {self.sequence} of {self.gateway} has impossible counts: {self.as_json()}")

    def as_json(self) -> dict[str, Any]:
        """Plain values, as the controller's ``report`` takes them."""
        return {
            "gateway": self.gateway,
            "sequence": self.sequence,
            "epoch": self.epoch,
            "arm": str(self.arm),
            "mirrored": self.mirrored,
            "outcomes": {str(outcome): count for outcome, count in self.outcomes.items()},
            "latency_ms": self.latency_ms,
            "agree": self.agree,
            "compared": self.compared,
        }

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> OutcomeBatch:
        """Read what :meth:`as_json` gave.

        Raises:
            ConfigError: fields are missing, unknown or impossible.
        """
        try:
            fields = dict(body)
            outcomes = {Outcome(name): int(count) for name, count in fields.pop("outcomes").items()}
            return cls(arm=Arm(fields.pop("arm")), outcomes=outcomes, **fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"not an outcome batch: {error.__class__.__name__}: {error}") from error


def interleaved(outcomes: Mapping[Outcome, int]) -> Iterator[Outcome]:
    """The counted outcomes in an order that spreads each kind evenly.

    A batch may be larger than a monitor's window; all bad ones last would make a healthy batch look ill.
    """
    total = sum(outcomes.values())
    due = [
        ((index + 0.5) * total / count, str(outcome), outcome)
        for outcome, count in outcomes.items()
        for index in range(count)
    ]
    yield from (outcome for _, _, outcome in sorted(due))


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The part of the evidence that survives a restart of the controller."""

    in_stage: Tally = _NOTHING
    """The subject's answers in this stage, copies included."""
    on_trial: Tally = _NOTHING
    """The subject's answers since SHADOW began."""
    stand_in: Tally = _NOTHING
    """The stand-in model's live answers since SHADOW began."""
    active_s: float = 0.0
    """Time in this stage while answers of the subject arrived."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        tallies = {name: getattr(self, name) for name in ("in_stage", "on_trial", "stand_in")}
        return {name: [tally.bad, tally.total] for name, tally in tallies.items()} | {"active_s": self.active_s}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Counts:
        """Read what :meth:`as_json` gave."""
        tallies = {name: Tally(bad=body[name][0], total=body[name][1]) for name in ("in_stage", "on_trial", "stand_in")}
        return cls(active_s=float(body["active_s"]), **tallies)


class Gatherer:
    """Collects batches into counts and into the two windows that are judged.

    Args:
        health: the rule for the subject's window; the stand-in's is judged by the same.
        max_gap_s: a longer time between answers of the subject does not count as active.
        counts: from before a restart.
    """

    def __init__(self, health: HealthPolicy, *, max_gap_s: float, counts: Counts) -> None:
        self.counts = counts
        self.max_gap_s = max_gap_s
        self._subject = HealthMonitor(policy=health)
        self._stand_in = HealthMonitor(policy=health)
        self._last_s: float | None = None
        self.first_s: float | None = None
        """When the subject's first answer in this stage came; None: none yet."""
        self._sequences: dict[str, int] = {}
        self.latency_ms = 0.0
        self.agree = 0
        self.compared = 0

    @property
    def subject(self) -> HealthMonitor:
        """The window over the subject's answers in this stage."""
        return self._subject

    @property
    def stand_in(self) -> HealthMonitor:
        """The window over the stand-in model's live answers."""
        return self._stand_in

    @property
    def gateways(self) -> int:
        """How many gateways have reported."""
        return len(self._sequences)

    def restart(self, health: HealthPolicy, counts: Counts) -> None:
        """A stage begins with what still counts; without a trial going on, nothing does."""
        self.counts = counts
        self._subject = HealthMonitor(policy=health)
        self._last_s = self.first_s = None
        if not counts.on_trial.total:
            self._stand_in = HealthMonitor(policy=health)
            self.latency_ms, self.agree, self.compared = 0.0, 0, 0

    def forget_stand_in(self) -> None:
        """The stand-in is another one, or none."""
        self.counts = replace(self.counts, stand_in=_NOTHING)
        self._stand_in.clear()

    def is_new(self, batch: OutcomeBatch) -> bool:
        """Whether this batch has not been seen before; remembers it. Calls arrive at least once, so twice as well."""
        if batch.sequence <= self._sequences.get(batch.gateway, 0):
            return False
        self._sequences.pop(batch.gateway, None)
        self._sequences[batch.gateway] = batch.sequence
        if len(self._sequences) > _MAX_GATEWAYS:  # replicas come and go under new names for as long as this lives
            self._sequences.pop(next(iter(self._sequences)))
        return True

    def add(self, batch: OutcomeBatch, now_s: float) -> None:
        """Count a batch of this stage. What says nothing about a model is left out."""
        telling = {outcome: count for outcome, count in batch.outcomes.items() if outcome not in SILENT and count}
        if not telling:
            return
        if batch.arm is Arm.SUBJECT:
            self._add_subject(batch, telling, now_s)
        elif not batch.mirrored:
            _feed(self._stand_in, telling)
            self.counts = replace(self.counts, stand_in=_plus(self.counts.stand_in, telling))

    def since_answer_s(self, now_s: float) -> float | None:
        """Seconds since the subject's last answer in this stage; None: none yet."""
        return None if self._last_s is None else now_s - self._last_s

    def _add_subject(self, batch: OutcomeBatch, telling: Mapping[Outcome, int], now_s: float) -> None:
        _feed(self._subject, telling)
        gap_s = self.since_answer_s(now_s)
        credit_s = gap_s if gap_s is not None and gap_s <= self.max_gap_s else 0.0
        self._last_s, self.first_s = now_s, now_s if self.first_s is None else self.first_s
        self.counts = replace(
            self.counts,
            in_stage=_plus(self.counts.in_stage, telling),
            on_trial=_plus(self.counts.on_trial, telling),
            active_s=self.counts.active_s + credit_s,
        )
        self.latency_ms += batch.latency_ms
        self.agree += batch.agree
        self.compared += batch.compared


def _feed(monitor: HealthMonitor, outcomes: Mapping[Outcome, int]) -> None:
    for outcome in interleaved(outcomes):
        monitor.record(outcome)


def _plus(tally: Tally, outcomes: Mapping[Outcome, int]) -> Tally:
    bad = sum(count for outcome, count in outcomes.items() if outcome in BAD)
    return Tally(bad=tally.bad + bad, total=tally.total + sum(outcomes.values()))
