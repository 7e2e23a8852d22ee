"""How long a worker may stay in one phase before it counts as hung. Judgement only; the watchdog acts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from failsoft.errors import ConfigError

EXIT_HUNG = 124
"""Exit status of a worker that its watchdog ended; the one that ``timeout`` uses, too."""


class WatchPhase(StrEnum):
    """What a worker is doing, as far as its patience goes."""

    START_UP = "start-up"
    """Reading data, building the model, restoring."""
    FIRST_STEP = "first step"
    """Meets its peers for the first time, and compiles."""
    STEP = "step"
    CHECKPOINT = "checkpoint"
    """Publishing, or going back to what was published."""
    VALIDATION = "validation"


@dataclass(frozen=True, kw_only=True)
class WatchPolicy:
    """A limit for each phase. A phase is timed anew whenever it begins, a step whenever a batch begins."""

    start_up_s: float = 1800.0
    """Reading data, building the model, restoring."""
    first_step_s: float = 900.0
    """Meets its peers for the first time, and compiles."""
    step_s: float = 240.0
    """Below the 300 s of a collective, so that the stacks of all ranks are on disk before the peers give up."""
    checkpoint_s: float = 1800.0
    """Publishing, or going back to what was published."""
    validation_s: float = 3600.0
    """A look at the validation split."""
    tick_s: float = 0.5
    """How often the watchdog looks."""
    look_s: float = 30.0
    """A look at storage or at the cluster, on a thread of its own, that takes longer is told of; it ends nobody."""
    interpreter_s: float = 300.0
    """Python itself stood still (a call holds its lock, or the watchdog's thread is dead): a timer outside of Python
    ends the worker then, with exit status 1, for that timer knows no other."""
    muster_s: float = 10.0
    """How long a worker that ends for a hang waits first for where the others stand; they look once a tick, so it
    takes a second where all are able to."""
    silence_s: float = 4500.0
    """The second line, in Ray's controller: seen from outside, no batch began for so long. For a worker whose watchdog
    is itself dead, so it is longer than any of the limits (start-up excepted, during which it does not count)."""

    def __post_init__(self) -> None:
        """Refuse limits that nothing could keep, and a timer that would end a worker between two looks."""
        for phase in WatchPhase:
            limit_s = self.limit_s(phase)
            if not limit_s > 0.0:
                raise ConfigError(f"{_FIELDS[phase]} is {limit_s}; use a positive number of seconds")
        if not 0.0 < self.tick_s < math.inf:
            raise ConfigError(f"tick_s is {self.tick_s}; use a positive number of seconds, 0.5 or so")
        if not 0.0 < self.look_s < math.inf:
            raise ConfigError(f"look_s is {self.look_s}; use a positive number of seconds, 30 or so")
        if not 4.0 * self.tick_s <= self.interpreter_s < math.inf:
            raise ConfigError(
                f"interpreter_s is {self.interpreter_s} with a look each {self.tick_s} s; use at least four looks"
            )
        if not 4.0 * self.tick_s <= self.muster_s < math.inf:
            raise ConfigError(
                f"muster_s is {self.muster_s} with a look each {self.tick_s} s; use at least four looks, or what the "
                "other ranks have to say is missed"
            )
        longest_s = max(self.limit_s(phase) for phase in WatchPhase if phase is not WatchPhase.START_UP)
        if not longest_s < self.silence_s:
            raise ConfigError(
                f"silence_s is {self.silence_s}, and a phase may take {longest_s} s; use more, it is the second line"
            )

    def limit_s(self, phase: WatchPhase) -> float:
        """Seconds that a phase may take."""
        return float(getattr(self, _FIELDS[phase]))


_FIELDS = {
    WatchPhase.START_UP: "start_up_s",
    WatchPhase.FIRST_STEP: "first_step_s",
    WatchPhase.STEP: "step_s",
    WatchPhase.CHECKPOINT: "checkpoint_s",
    WatchPhase.VALIDATION: "validation_s",
}


def overdue(phase: WatchPhase, since_s: float, policy: WatchPolicy) -> bool:
    """Whether a phase that began ``since_s`` seconds ago takes too long; time that isn't known (NaN) is too long."""
    return not since_s <= policy.limit_s(phase)


class Patience:
    """Counts how long the same mark has stood, from looks at it. The one who sets marks reads no clock.

    A look that comes late counts for two ticks at most: a process that was frozen and thawed (SIGSTOP, a moved
    machine) has not hung meanwhile.
    """

    def __init__(self, policy: WatchPolicy) -> None:
        self._policy = policy
        self._mark: object = None
        self._looked_s = math.nan
        self.since_s = 0.0
        """How long the mark of the last look has stood."""

    def look(self, mark: object, phase: WatchPhase, now_s: float) -> bool:
        """Look once; returns whether the phase is overdue.

        Args:
            mark: another object whenever something moved.
            phase: the phase that the mark belongs to.
            now_s: monotonic time.
        """
        gap_s = min(now_s - self._looked_s, 2.0 * self._policy.tick_s)
        self.since_s = 0.0 if mark is not self._mark else self.since_s + gap_s
        self._mark, self._looked_s = mark, now_s
        return overdue(phase, self.since_s, self._policy)


class Stillness:
    """Whether a value that others change has stood for too long. Counts from the first change that it sees.

    So a group of workers that starts up, and shows the position that the group before it reached, is left alone.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._value: object = None
        self._since_s: float | None = None
        self._looked = False

    def look(self, value: object, now_s: float) -> bool:
        """Look once, at monotonic time ``now_s``; returns whether the value has stood for longer than the limit."""
        if self._looked and value != self._value:
            self._since_s = now_s
        self._value, self._looked = value, True
        return self._since_s is not None and not now_s - self._since_s <= self._limit_s
