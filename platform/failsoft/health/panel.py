"""All signals of one model on one panel: recorded as they come, judged together. Serving's two sides share it.

A gateway feeds it each answer of the model that it watches; the controller feeds it what all gateways report. It judges
only; whoever owns it acts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from failsoft.health.callers import CallerWindows, caller_in_words
from failsoft.health.drift import LabelMix, Looked, OovWindow
from failsoft.health.monitor import HealthMonitor, HealthPolicy, Status, Verdict
from failsoft.health.signals import HealthyBehaviour, Level, SignalPolicy, armed
from failsoft.health.window import Outcome

_SHED, _BAD_INPUT, _GOOD, _BAD = Outcome.SHED, Outcome.BAD_INPUT, Outcome.GOOD, Outcome.ERROR

_DOUBT = 3
"""So many wrong answers, and a share of them above the limit, leave open whether a model is healthy."""


class Finding(NamedTuple):
    """What all signals together say. Status and reason are those of the signal that decides."""

    status: Status
    reason_signal: str
    """``answers`` for quality, errors and late answers; else the signal that trips."""
    verdict: Verdict
    """Of the window over quality, errors and late answers."""
    other: str | None
    """Why another signal trips, or leaves the verdict open; None: it does neither."""

    @property
    def bad(self) -> int:
        """Bad answers in the window."""
        return self.verdict.bad

    @property
    def total(self) -> int:
        """Answers in the window."""
        return self.verdict.total

    @property
    def reason(self) -> str:
        """Why, in words; worked out only when somebody reads it."""
        return self.verdict.reason if self.other is None else f"{self.reason_signal}: {self.other}"


class SignalPanel:
    """The signals of one model. O(1) work for a record.

    Args:
        health: the rule for quality, errors and late answers.
        signals: which signals may do what.
        release: the model's, for words.
        healthy: how it behaved on validation data; None: unknown, so nothing is armed from it or compared with it.
    """

    def __init__(
        self,
        health: HealthPolicy,
        signals: SignalPolicy | None = None,
        *,
        release: str = "",
        healthy: HealthyBehaviour | None = None,
    ) -> None:
        given = signals or SignalPolicy()
        self.armed = fit = armed(health, given, release, healthy)
        self.latency_p95_ms = None if healthy is None else healthy.latency_p95_ms
        self.policy = policy = fit.signals
        self._answers = CallerWindows(fit.health, policy.callers, counts_as_bad=policy.held_against)
        self._slow = CallerWindows(policy.slow, policy.callers)
        self._labels = CallerWindows(policy.wrong, policy.callers)
        self._told = self._labels.verdict()
        self._softer = HealthMonitor(policy=fit.health, counts_as_bad=policy.outcomes_at(Level.WARN))
        self._unanswered = {kind: HealthMonitor(policy=policy.unanswered) for kind in (_SHED, _BAD_INPUT)}
        self._repaired = HealthMonitor(policy=policy.mended)
        self._mix, self._oov = _drift(policy, healthy)

    def record(self, outcome: Outcome, caller: int | None = None) -> None:
        """How one call ended."""
        self._answers.record(outcome, caller)
        self._softer.record(outcome)
        for kind, monitor in self._unanswered.items():
            monitor.record(_BAD if outcome is kind else _GOOD)

    def record_latency(self, *, slow: bool, caller: int | None = None) -> None:
        """Whether one answer was slow; see :func:`failsoft.health.signals.is_slow`."""
        self._slow.record(_BAD if slow else _GOOD, caller)

    def record_label(self, label: str, caller: int | None = None) -> None:
        """The label that one answer gave."""
        if self._mix is not None:
            self._mix.record(label, caller)

    def record_oov(self, share: float, caller: int | None = None) -> None:
        """One text's share of unknown words."""
        if self._oov is not None:
            self._oov.record(share, caller)

    def record_repaired(self, *, repaired: bool) -> None:
        """Whether one text had to be mended before the model could read it."""
        self._repaired.record(_BAD if repaired else _GOOD)

    def record_feedback(self, *, right: bool, caller: int | None = None) -> None:
        """What a label that came later says about one answer."""
        self._labels.record(_GOOD if right else _BAD, caller)
        self._told = self._labels.verdict()  # labels are few, and answers, which ask for a verdict each, are many

    @property
    def apart(self) -> frozenset[int]:
        """Callers whose answers are judged alone."""
        return frozenset(self._answers.apart())

    def verdict(self) -> Finding:
        """Judge all signals that may trip."""
        answers = self._answers.verdict()
        if answers.status is Status.DEGRADED:
            return Finding(answers.status, "answers", answers, None)
        for signal, why in self._found(Level.TRIP):
            return Finding(Status.DEGRADED, signal, answers, why)
        doubt = self._doubt() if answers.status is Status.HEALTHY else None
        if doubt is not None:
            return Finding(Status.NO_VERDICT, "feedback", answers, doubt)
        return Finding(answers.status, "answers", answers, None)

    def _doubt(self) -> str | None:
        """Why labels forbid to call the model healthy, though they do not prove it ill yet: no stage is passed so."""
        if self.policy.feedback is not Level.TRIP:
            return None
        told = self._told
        leaning = told.bad >= _DOUBT and told.bad / told.total >= self.policy.wrong.max_bad_fraction
        return f"{_labels_in_words(told)}: too few to be sure" if leaning else None

    def holds_back(self, caller: int | None) -> str | None:
        """Why this request of a caller had better not go to the model now; None: it may. Ask once for each request."""
        for windows in (self._answers, self._slow, self._labels):
            if windows.holds_back(caller):
                return "this caller's answers alone went bad; the others' did not"
        return None

    def newly_apart(self) -> list[str]:
        """Words about callers who were set apart since this was last asked."""
        told: list[str] = []
        for windows in (self._answers, self._slow, self._labels):
            told += [f"caller {caller_in_words(one)} is judged alone from now on" for one in windows.newly_apart]
            windows.newly_apart.clear()
        return told

    def kinds(self) -> dict[Outcome, int]:
        """How many answers of each kind the window over quality, errors and late answers holds."""
        return self._answers.kinds()

    def clear(self, *, but_labels: bool = False) -> None:
        """Start anew: another plan or other weights. Late labels are few, and hold for the same weights in any plan."""
        for windows in (self._answers, self._slow):
            windows.clear()
        if not but_labels:
            self._labels.clear()
            self._told = self._labels.verdict()
        for monitor in (self._softer, self._repaired, *self._unanswered.values()):
            monitor.clear()
        for drift in (self._mix, self._oov):
            if drift is not None:
                drift.clear()

    def take_labels_of(self, other: SignalPanel) -> None:
        """Go on with what late labels told another panel about the same weights, under the same rule."""
        if other._labels.policy == self._labels.policy:
            self._labels, self._told = other._labels, other._told

    def warnings(self) -> dict[str, str]:
        """Signals that are found and may not trip, with their reasons."""
        found = dict(self._found(Level.WARN))
        softer = self._softer.verdict()
        if softer.status is Status.DEGRADED:
            kinds = ", ".join(sorted(self._softer.counts_as_bad))
            found[kinds] = softer.reason
        for kind, monitor in self._unanswered.items():
            verdict = monitor.verdict()
            if verdict.status is Status.DEGRADED and getattr(self.policy, kind) is Level.WARN:
                found[str(kind)] = f"{verdict.bad} of the last {verdict.total} calls"
        mended = self._repaired.verdict()
        if mended.status is Status.DEGRADED and self.policy.repaired is Level.WARN:
            found["repaired"] = f"{mended.bad} of the last {mended.total} texts had to be repaired"
        return found

    def status(self) -> dict[str, Any]:
        """Everything for people: the rule, what each signal measures, who is apart."""
        apart = self._answers.apart() | self._slow.apart() | self._labels.apart()
        looked = {"label_mix": self._mix, "oov": self._oov}
        return {
            "rule": self.policy.in_words(),
            "warnings": self.warnings(),
            "outcomes": {str(kind): count for kind, count in self.kinds().items()},
            "latency": self._slow.verdict().reason,
            "feedback": _labels_in_words(self._told),
            "drift": {name: _said(part) for name, part in looked.items()},
            "not_judged": dict(self.armed.unjudged),
            "callers_apart": {caller_in_words(caller): verdict.reason for caller, verdict in apart.items()},
        }

    def _found(self, level: Level) -> list[tuple[str, str]]:
        """Signals of this level that are found, and why."""
        policy, found = self.policy, []
        if policy.latency is level and (slow := self._slow.verdict()).status is Status.DEGRADED:
            found.append(("latency", f"{slow.reason} slow"))
        if policy.feedback is level and self._told.status is Status.DEGRADED:
            found.append(("feedback", _labels_in_words(self._told)))
        for signal, part in (("label_mix", self._mix), ("oov", self._oov)):
            if part is not None and part.last is not None and part.last.found and getattr(policy, signal) is level:
                found.append((signal, part.last.why))
        return found


def _drift(policy: SignalPolicy, healthy: HealthyBehaviour | None) -> tuple[LabelMix | None, OovWindow | None]:
    if healthy is None:
        return None, None
    mix = oov = None
    if policy.label_mix is not Level.OFF:
        mix = LabelMix(policy.drift, healthy.label_mix, healthy.samples)
    if policy.oov is not Level.OFF:
        own = healthy.oov_fraction if healthy.oov_mean is None else healthy.oov_mean
        oov = OovWindow(policy.drift, own)
    return mix, oov


def _labels_in_words(verdict: Verdict) -> str:
    if not verdict.total:
        return "no late label yet"
    limit = verdict.policy.max_bad_fraction
    return f"{verdict.bad} wrong of {verdict.total} with a late label, limit {limit:.0%}"


def _said(part: LabelMix | OovWindow | None) -> str:
    if part is None:
        return "not watched"
    if part.refusal is not None:
        return f"not judged: {part.refusal}"
    looked: Looked | None = part.last
    return "too few answers yet" if looked is None else looked.why
