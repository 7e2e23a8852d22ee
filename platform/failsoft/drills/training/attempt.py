"""One start of the command: watched until it ends, or until nobody would wait any longer."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from failsoft.drills.fault import DrillFault
from failsoft.drills.training.inside.marks import Marks
from failsoft.drills.training.launch import Launcher, Start, Started, end_all
from failsoft.drills.training.leftovers import alive, words_of
from failsoft.health.clock import Clock

_TICK_S = 0.05
_STRAGGLE_S = 8.0
"""So long a helper (a writer, a loader's worker) may outlive the process that it belongs to: workers of torch's
DataLoader look every 5 s whether theirs is still there (``MP_STATUS_CHECK_INTERVAL``)."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a user waits."""

    still_s: float
    """Without any sign of life: no step, no line of output, no file."""
    grace_s: float = 5.0
    """From a drain's notice to SIGKILL."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What became of one start."""

    status: int
    """Exit status; negative: the signal that ended it."""
    seconds: float
    backwards: int
    """Backward passes of the process that trained most."""
    passes: int
    """Those of all its processes together: ranks, and those that took the place of killed ones."""
    hung: bool
    """Ended by the drill, since nothing had moved for longer than the user's patience."""
    left: tuple[str, ...]
    """Processes that it left behind, in words; they are ended."""
    last_words: str
    """The last line of its output."""


class Watcher:
    """Carries out attempts of one trial."""

    def __init__(self, launcher: Launcher, marks: Marks, patience: Patience, clock: Clock) -> None:
        self._launcher = launcher
        self._marks = marks
        self._patience = patience
        self._clock = clock
        self._sessions: tuple[int, ...] = ()

    def carry_out(self, start: Start) -> Attempt:
        """Start, wait, clear up."""
        before, began_s = set(self._marks.counts()), self._clock.monotonic_s()
        drains = self._drains()
        started = self._launcher.start(start)
        self._sessions = (*self._sessions, started.pid)
        hung = not self._ended(started, start, drains)
        if hung:
            end_all([*alive(start.trial, self._sessions), started.pid])
            started.wait(10.0)
        seconds = self._clock.monotonic_s() - began_s
        left = () if hung else self._stragglers(start)
        if not alive(start.trial, self._sessions):
            self._sessions = ()  # all is over, and the system may give their numbers to strangers
        own = {process: count for process, count in self._marks.counts().items() if process not in before}
        return Attempt(
            status=started.status(),
            seconds=seconds,
            backwards=max(own.values(), default=0),
            passes=sum(own.values()),
            hung=hung,
            left=left,
            last_words=_last_line(start.log),
        )

    def clear(self, trial: str) -> None:
        """End whatever is still there."""
        end_all(alive(trial, self._sessions))

    def _ended(self, started: Started, start: Start, drains: int) -> bool:
        seen, since_s, drained_s = self._signs(start), self._clock.monotonic_s(), None
        while not started.wait(_TICK_S):
            now_s = self._clock.monotonic_s()
            signs = self._signs(start)
            if signs != seen:
                seen, since_s = signs, now_s
                if drained_s is None and self._drains() > drains:
                    drained_s = now_s
                    end_all(alive(start.trial, self._sessions), signal.SIGTERM)
            if drained_s is not None and now_s - drained_s > self._patience.grace_s:
                end_all(alive(start.trial, self._sessions))
            if now_s - since_s > self._patience.still_s:
                return False
        return True

    def _signs(self, start: Start) -> tuple[object, ...]:
        """Anything that moves."""
        log = start.log.stat().st_size if start.log.exists() else 0
        marks = self._marks.file("marks.jsonl")
        return log, tuple(self._marks.counts().values()), marks.stat().st_size if marks.exists() else 0

    def _drains(self) -> int:
        return sum(mark["what"] == "drain" for mark in self._marks.read())

    def _stragglers(self, start: Start) -> tuple[str, ...]:
        until_s = self._clock.monotonic_s() + _STRAGGLE_S
        left = self._loose(start)
        while left and self._clock.monotonic_s() < until_s:
            self._clock.sleep_s(_TICK_S)
            left = self._loose(start)
        words = tuple(words_of(pid) for pid in left)
        end_all(alive(start.trial, self._sessions))
        return words

    def _loose(self, start: Start) -> list[int]:
        """Alive, less those that hang in a disk by the drill's own doing: nobody can end a call that never returns."""
        hung = [mark for mark in self._marks.read() if mark["what"] == "struck" and mark["kind"] == DrillFault.HANG]
        stuck = {mark["pid"] for mark in hung if mark["on"] == "save"}
        return [pid for pid in alive(start.trial, self._sessions) if pid not in stuck]


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    return next((line.strip()[:240] for line in reversed(lines) if line.strip()), "")
