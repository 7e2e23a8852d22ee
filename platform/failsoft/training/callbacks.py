"""Loggers, plots and exporters beside the training: told what happened, and free to fail, run out of memory or hang.

Each runs on rank 0 alone, in a thread of its own, and gets plain numbers, nothing of the model. The training waits for
it for a short time; one that is not back by then is left to itself, and not called again before it is. One that raises
is called again, twice, to do less (``scale`` one half, then one quarter); after failures in a row it rests, with
growing patience, and one call after the rest decides. Failures are counted and told: the first of each row, and rests.
Global generators are put back after each call, so that a plot that draws from one leaves the run as it was.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from failsoft.errors import ConfigError
from failsoft.health.clock import Clock
from failsoft.training.degradation import Degradation, DegradationKind, Degradations, Tell
from failsoft.training.loading.quarantine import Gate, Quarantine, QuarantinePolicy
from failsoft.training.resting import three_in_a_row
from failsoft.training.rng import HeldRng


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What a callback is told, after an applied step."""

    position: int
    """Global batches consumed."""
    step: int
    """Updates applied."""
    loss: float | None
    """Running mean; None before the first."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the validation of this very moment; empty when there was none, and a metric that failed is not in it."""
    scale: float = 1.0
    """How much to do: 1, or one half or one quarter when it failed before. A callback may pass over it."""


Callback = Callable[[Moment], object]
"""Says, draws or sends something, in a thread of its own. Whatever it raises is counted; it can't stop a run."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A callback, and how often it is called."""

    name: str
    call: Callback
    every_steps: int = 100
    """Applied steps between calls."""
    limit_s: float = 5.0
    """How long the training waits for it; the other ranks wait meanwhile, too."""
    halvings: int = 2
    """How often it is tried again at half the scale."""
    rest: QuarantinePolicy = field(default_factory=three_in_a_row)

    def __post_init__(self) -> None:
        """Refuse calls that never come, and a wait that has no end."""
        if not self.name:
            raise ConfigError("name is empty; a callback that fails is told by its name, give it one")
        if self.every_steps < 1:
            raise ConfigError(f"every_steps of callback {self.name} is {self.every_steps}; use 1 or more")
        if not 0.0 < self.limit_s <= 60.0:
            raise ConfigError(
                f"limit_s of callback {self.name} is {self.limit_s}; all ranks wait for it, so use a time above 0 and "
                "up to 60 s"
            )
        if self.halvings < 0:
            raise ConfigError(f"halvings of callback {self.name} is {self.halvings}; use 0 or more")


class Callbacks:
    """Calls the listeners when they are due. Rank 0 has one.

    Args:
        listeners: with names of their own.
        tell: writes events; ``Chronicle.tell``.
        clock: for rests.
    """

    def __init__(self, listeners: Sequence[Listener], tell: Tell, clock: Clock) -> None:
        names = [listener.name for listener in listeners]
        if len(set(names)) < len(names):
            raise ConfigError(f"callbacks are called {', '.join(names)}; each needs a name of its own")
        degradations = Degradations(tell)
        self._posts = [_Post(listener, tell, clock, degradations) for listener in listeners]

    def applied(self, step: int, moment: Callable[[], Moment]) -> None:
        """An update was applied; call whoever is due, and wait for each for its limit at most.

        Args:
            step: updates applied.
            moment: makes what the callbacks are told; asked only when one of them is due.
        """
        for post in self._posts:
            if post.due(step):
                post.called(moment())

    @property
    def failures(self) -> Mapping[str, int]:
        """Failed calls so far, by callback; those that are late count."""
        return {post.name: post.failures for post in self._posts}


class _Call(threading.Thread):
    """One call with its retries; a daemon, so that one that hangs does not keep the process."""

    def __init__(self, listener: Listener, moment: Moment) -> None:
        super().__init__(name=f"failsoft-callback-{listener.name}", daemon=True)
        self._listener = listener
        self._moment = moment
        self.whys: list[str] = []
        self.worked = False

    def run(self) -> None:
        """Call, and call again for less."""
        for halving in range(self._listener.halvings + 1):
            try:
                self._listener.call(replace(self._moment, scale=0.5**halving))
            except BaseException as error:  # noqa: BLE001 -- the thread's outermost frame; counted and told
                self.whys.append(f"{type(error).__name__}: {str(error)[:300]}")
            else:
                self.worked = True
                return


class _Post:
    """One listener and its record."""

    def __init__(self, listener: Listener, tell: Tell, clock: Clock, degradations: Degradations) -> None:
        self.name = listener.name
        self.failures = 0
        self._listener = listener
        self._tell = tell
        self._degradations = degradations
        self._quarantine = Quarantine(listener.rest, clock, random.Random(listener.name))
        self._late: _Call | None = None
        self._in_a_row = 0

    def due(self, step: int) -> bool:
        """Whether to call now; one that is late is not called again before it is back."""
        if step % self._listener.every_steps or (self._late is not None and self._late.is_alive()):
            return False
        self._late = None
        return self._quarantine.admits()

    def called(self, moment: Moment) -> None:
        """Call it, wait, and put down what became of it."""
        moment = replace(moment, metrics=dict(moment.metrics))  # its own, to do as it likes with
        generators, call = HeldRng.take(), _Call(self._listener, moment)
        try:
            call.start()
        except RuntimeError as error:  # the system has no thread, or no memory for one
            self._failed(f"{type(error).__name__}: {error}", retries=0)
            return
        call.join(self._listener.limit_s)
        generators.restore()
        if call.is_alive():
            self._late = call
            self._failed(f"not back after {self._listener.limit_s:g} s; it is left to itself", retries=0)
        elif call.worked:
            self._worked(call)
        else:
            self._failed(call.whys[-1], retries=len(call.whys) - 1)

    def _worked(self, call: _Call) -> None:
        self.failures += len(call.whys)
        if call.whys and not self._in_a_row:
            self._tell("callback_failed", call.whys[-1], name=self.name, retries=len(call.whys), given_up=False)
        self._in_a_row = len(call.whys)
        self._quarantine.answered()
        self._degradations.ended(DegradationKind.CALLBACK, name=self.name, why="it works again")

    def _failed(self, why: str, *, retries: int) -> None:
        self.failures += retries + 1
        self._in_a_row += 1
        if self._in_a_row == 1:
            self._tell("callback_failed", why, name=self.name, retries=retries, given_up=True)
        self._quarantine.failed(why)
        if self._quarantine.gate is Gate.OPEN:
            self._degradations.began(
                Degradation(
                    kind=DegradationKind.CALLBACK,
                    name=self.name,
                    cause=self._quarantine.cause,
                    level=f"rests for {self._quarantine.rest_s:.0f} s",
                    cost="what it would have said, drawn or sent",
                    way_back="one call after the rest; it goes on when that works",
                    details={"failures": self.failures},
                )
            )
