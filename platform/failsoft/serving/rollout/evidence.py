"""What is known about the subject and its stand-in under the current stage, gathered from the gateways' reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from failsoft.health.monitor import SILENT, HealthPolicy
from failsoft.health.panel import SignalPanel
from failsoft.health.sequential import Tally
from failsoft.health.signals import SignalPolicy
from failsoft.health.window import Outcome
from failsoft.serving.plan.plan import Arm
from failsoft.serving.watching.batch import OutcomeBatch, interleaved
from failsoft.serving.watching.beside import NOTHING_BESIDE

__all__ = ["Counts", "Gatherer", "OutcomeBatch", "interleaved"]

_NOTHING = Tally(bad=0, total=0)
_MAX_GATEWAYS = 4096
_MAX_CALLERS = 256
"""Callers whose part in a stage is remembered, so that it can be taken back when one is set apart."""


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
        signals: what else is judged, and which of it may trip. What gateways can tell alone (labels, words) they judge
            alone.
        max_gap_s: a longer time between answers of the subject does not count as active.
        counts: from before a restart.
    """

    def __init__(
        self, health: HealthPolicy, *, max_gap_s: float, counts: Counts, signals: SignalPolicy | None = None
    ) -> None:
        self.counts = counts
        self.max_gap_s = max_gap_s
        self.signals = signals or SignalPolicy()
        self._subject = SignalPanel(health, self.signals)
        self._stand_in = SignalPanel(health, self.signals)
        self._by_caller: dict[int, Tally] = {}
        self._last_s: float | None = None
        self.first_s: float | None = None
        """When the subject's first answer in this stage came; None: none yet."""
        self._sequences: dict[str, int] = {}
        self.latency_ms = 0.0
        self.agree = 0
        self.compared = 0
        self.beside = NOTHING_BESIDE

    @property
    def subject(self) -> SignalPanel:
        """The signals of the subject in this stage."""
        return self._subject

    @property
    def stand_in(self) -> SignalPanel:
        """The signals of the stand-in model's live answers."""
        return self._stand_in

    @property
    def gateways(self) -> int:
        """How many gateways have reported."""
        return len(self._sequences)

    def restart(self, health: HealthPolicy, counts: Counts) -> None:
        """A stage begins with what still counts; without a trial going on, nothing does."""
        self.counts = counts
        before, self._subject = self._subject, SignalPanel(health, self.signals)
        if counts.on_trial.total:  # the same weights go on, and late labels about them are few
            self._subject.take_labels_of(before)
        self._by_caller.clear()
        self._last_s = self.first_s = None
        if not counts.on_trial.total:
            self._stand_in = SignalPanel(health, self.signals)
            self.latency_ms, self.agree, self.compared, self.beside = 0.0, 0, 0, NOTHING_BESIDE

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
        """Count a batch of this stage. What says nothing about a model is left out, as is a caller who is apart."""
        if batch.arm is Arm.SUBJECT:
            _feed(self._subject, batch)
        elif not batch.mirrored:
            _feed(self._stand_in, batch)
        self._take_back(self._subject.apart)
        telling = _telling(batch.outcomes)
        if not telling:
            return
        fair = _telling(batch.without(self._subject.apart | self._stand_in.apart))
        if batch.arm is Arm.SUBJECT:
            self._add_subject(batch, fair, now_s)
        elif not batch.mirrored:
            self.counts = replace(self.counts, stand_in=self._plus(self.counts.stand_in, fair))

    def since_answer_s(self, now_s: float) -> float | None:
        """Seconds since the subject's last answer in this stage; None: none yet."""
        return None if self._last_s is None else now_s - self._last_s

    def _add_subject(self, batch: OutcomeBatch, telling: Mapping[Outcome, int], now_s: float) -> None:
        gap_s = self.since_answer_s(now_s)
        credit_s = gap_s if gap_s is not None and gap_s <= self.max_gap_s else 0.0
        self._last_s, self.first_s = now_s, now_s if self.first_s is None else self.first_s
        self.counts = replace(
            self.counts,
            in_stage=self._plus(self.counts.in_stage, telling),
            on_trial=self._plus(self.counts.on_trial, telling),
            active_s=self.counts.active_s + credit_s,
        )
        self.latency_ms += batch.latency_ms
        self.agree += batch.agree
        self.compared += batch.compared
        self.beside += batch.beside
        self._remember(batch)

    def _plus(self, tally: Tally, outcomes: Mapping[Outcome, int]) -> Tally:
        """More outcomes; bad are those that may take trust away."""
        telling, against = _telling(outcomes), self.signals.held_against
        bad = sum(count for outcome, count in telling.items() if outcome in against)
        return Tally(bad=tally.bad + bad, total=tally.total + sum(telling.values()))

    def _remember(self, batch: OutcomeBatch) -> None:
        """What each known caller brought to this stage."""
        for caller in batch.callers.keys() - self._subject.apart:
            part = self._plus(self._by_caller.pop(caller, _NOTHING), batch.part(caller))
            self._by_caller[caller] = part
            if len(self._by_caller) > _MAX_CALLERS:
                self._by_caller.pop(next(iter(self._by_caller)))

    def _take_back(self, apart: frozenset[int]) -> None:
        """What a caller brought who is set apart now is no evidence about the model, also not what came before."""
        for caller in apart & self._by_caller.keys():
            part = self._by_caller.pop(caller)
            counts = self.counts
            self.counts = replace(
                counts, in_stage=_minus(counts.in_stage, part), on_trial=_minus(counts.on_trial, part)
            )


def _feed(panel: SignalPanel, batch: OutcomeBatch) -> None:
    """All that a batch says about a model, evenly mixed, and judged: that is where a caller may be set apart."""
    ends: dict[tuple[Outcome, int | None], int] = {
        (outcome, None): count for outcome, count in batch.without(batch.callers).items()
    }
    for one in batch.callers:
        ends |= {(outcome, one): count for outcome, count in batch.part(one).items()}
    for outcome, caller in interleaved(ends):
        panel.record(outcome, caller)
    for slow, caller in interleaved(batch.timed_calls()):
        panel.record_latency(slow=slow, caller=caller)
    for wrong, caller in interleaved(batch.labelled_answers()):
        panel.record_feedback(right=not wrong, caller=caller)
    panel.verdict()


def _telling(outcomes: Mapping[Outcome, int]) -> dict[Outcome, int]:
    return {outcome: count for outcome, count in outcomes.items() if outcome not in SILENT and count}


def _minus(tally: Tally, part: Tally) -> Tally:
    """Never below nothing: counts of before a restart hold less than the memory of callers may."""
    total = max(0, tally.total - part.total)
    return Tally(bad=min(total, max(0, tally.bad - part.bad)), total=total)
