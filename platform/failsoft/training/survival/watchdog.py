"""The watchdog of one worker: sees that it hangs, leaves the stacks of its threads, and ends it.

Three lines of defence, each for when the one before is itself gone. A thread looks at the phase twice a second; it
needs no word from the training thread but a mark that moves. A timer outside of Python (``faulthandler``) ends the
process when that thread has not looked for ``interpreter_s``: a call that never gives Python's lock back, a ledger on
storage that hangs. Ray's own health check ends a process in which not even that runs.

A worker that ends exits with ``EXIT_HUNG``; whoever started it (Ray, the supervisor, torchrun) starts it again.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Protocol, Self

from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger
from failsoft.training.survival.stacks import bounded, innermost, stacks_of_all_threads
from failsoft.training.survival.watch_policy import EXIT_HUNG, Patience, WatchPhase, WatchPolicy

HANGS_FOLDER = "hangs"
_LAST_WORDS_S = 10.0


class Watch(Protocol):
    """What the loop tells of its progress."""

    def begins(self, position: int) -> None:
        """The batch at ``position`` begins; the one before is over."""
        ...

    def during(self, phase: WatchPhase) -> AbstractContextManager[None]:
        """Another phase for the time of the block."""
        ...


class Mark(NamedTuple):
    """The last sign of life."""

    phase: WatchPhase
    position: int


@dataclass(frozen=True, kw_only=True)
class WatchPost:
    """Where a watchdog writes, and for whom."""

    folder: Path
    """The run's folder."""
    ledger: Ledger
    clock: Clock
    rank: int = 0


class Watchdog:
    """Watches from entering to leaving the ``with`` block, which the training thread does.

    Args:
        post: where to write.
        policy: the limits.
        chores: called at each look, on the watchdog's thread: whatever else must be looked at now and then. One that
            raises ends the thread, and so, later, the process.
        end: ends the process; never returns in earnest.
    """

    def __init__(
        self,
        post: WatchPost,
        policy: WatchPolicy,
        *,
        chores: Sequence[Callable[[], object]] = (),
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._post = post
        self._policy = policy
        self._chores = chores
        self._end = end
        self._patience = Patience(policy)
        self._mark = Mark(WatchPhase.START_UP, 0)
        self._stepped = False
        self._watched: int | None = None
        self._over = threading.Event()
        self._file: IO[str] | None = None

    @property
    def path(self) -> Path:
        """The file for stacks; empty while all is well."""
        return self._post.folder / HANGS_FOLDER / f"rank-{self._post.rank}.txt"

    def __enter__(self) -> Self:
        """Tell of a worker that the outer timer ended here before, then watch."""
        self._watched = threading.get_ident()
        self._tell_untold()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("w", encoding="utf-8")
        self._arm(self._policy.interpreter_s)
        threading.Thread(target=self._watch, name="failsoft-watchdog", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Watch no longer."""
        self._over.set()
        faulthandler.cancel_dump_traceback_later()

    def begins(self, position: int) -> None:
        """The batch at ``position`` begins. Costs one small object; reads no clock."""
        self._mark = Mark(WatchPhase.STEP if self._stepped else WatchPhase.FIRST_STEP, position)
        self._stepped = True

    @contextmanager
    def during(self, phase: WatchPhase) -> Iterator[None]:
        """Another phase for the time of the block; the one before goes on afterwards, timed anew."""
        before = self._mark
        self._mark = Mark(phase, before.position)
        try:
            yield
        finally:
            self._mark = Mark(before.phase, before.position)

    def look(self) -> None:
        """One look: chores, then judge and, when the phase is overdue, end the process."""
        for chore in self._chores:
            chore()
        mark = self._mark
        if self._patience.look(mark, mark.phase, self._post.clock.monotonic_s()):
            self._give_up(mark)

    def _watch(self) -> None:
        while not self._over.wait(self._policy.tick_s):
            self.look()
            if not self._over.is_set():
                self._arm(self._policy.interpreter_s)

    def _arm(self, after_s: float) -> None:
        if self._file is not None:
            faulthandler.dump_traceback_later(after_s, exit=True, file=self._file)

    def _give_up(self, mark: Mark) -> None:
        """The file first: it needs least of what may be broken. When the disk hangs or refuses, the timer ends us."""
        self._arm(_LAST_WORDS_S)
        where, stacks = innermost(self._watched), stacks_of_all_threads(first=self._watched)
        limit_s = self._policy.limit_s(mark.phase)
        why = (
            f"{mark.phase} at batch {mark.position} takes longer than its {limit_s:g} s; it is in {where or 'no call'}"
        )
        if self._file is not None:
            self._file.write(f"{why}\n{stacks}\n")
            self._file.flush()
        kept = self._set_aside()
        self._post.ledger.record(
            "hang",
            why,
            phase=mark.phase,
            position=mark.position,
            rank=self._post.rank,
            since_s=round(self._patience.since_s, 3),
            limit_s=limit_s,
            where=where,
            stacks=bounded(stacks),
            file=str(kept),
        )
        self._end(EXIT_HUNG)

    def _tell_untold(self) -> None:
        """The outer timer writes stacks and no ledger; the next worker of this rank says what it finds."""
        if not self.path.is_file() or not self.path.stat().st_size:
            return
        stacks = self.path.read_text("utf-8", errors="replace")
        kept = self._set_aside()
        why = f"Python stood still for {self._policy.interpreter_s:g} s in the worker before; its stacks are in {kept}"
        self._post.ledger.record("hang", why, rank=self._post.rank, stacks=bounded(stacks), file=str(kept))

    def _set_aside(self) -> Path:
        kept = self.path.with_name(f"rank-{self._post.rank}-{self._post.clock.wall_s():.3f}.txt")
        self.path.replace(kept)
        return kept


class NoWatch:
    """Nobody watches."""

    def begins(self, position: int) -> None:
        """Nothing to tell."""

    def during(self, phase: WatchPhase) -> AbstractContextManager[None]:
        """Nothing to tell."""
        return nullcontext()
