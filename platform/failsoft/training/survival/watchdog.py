"""The watchdog of one worker: sees that it hangs, leaves the stacks of its threads, and ends it.

Before it ends it, it calls the other ranks of the group (see :mod:`failsoft.training.survival.muster`): each leaves its
stacks as well, and the one that called says who stands where, and who is probably to blame.

Three lines of defence, each for when the one before is itself gone. A thread looks at the phase twice a second; it
needs no word from the training thread but a mark that moves, and no storage: whatever must be looked at there has a
thread of its own (:mod:`failsoft.training.survival.lookout`). A timer outside of Python (``faulthandler``) ends the
process when the first thread has not looked for ``interpreter_s``: a call that never gives Python's lock back. Ray's
own health check ends a process in which not even that runs.

A worker that ends exits with ``EXIT_HUNG``; whoever started it (Ray, the supervisor, torchrun) starts it again.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Protocol, Self

from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger
from failsoft.training.survival.lookout import Lookouts
from failsoft.training.survival.muster import Muster
from failsoft.training.survival.process_mark import STACKS_SIGNAL
from failsoft.training.survival.stack_files import HANGS_FOLDER, StackFiles
from failsoft.training.survival.stacks import bounded, frame_of, innermost, stacks_of_all_threads
from failsoft.training.survival.suspicion import Statement, standing_of, suspect
from failsoft.training.survival.watch_policy import EXIT_HUNG, Patience, WatchPhase, WatchPolicy

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
        chores: whatever else must be looked at now and then, each on a thread of its own. One that stands still is
            told of, and ends nobody; one that raises ends the watchdog, and so, later, the process.
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
        self._end = end
        self._patience = Patience(policy)
        self._mark = Mark(WatchPhase.START_UP, 0)
        self._stepped = False
        self._watched: int | None = None
        self._over = threading.Event()
        self._files = StackFiles(folder=post.folder / HANGS_FOLDER, clock=post.clock)
        self._file: IO[str] | None = None
        self._kept: Path | None = None
        self._muster: Muster | None = None
        self._answered_s: float | None = None
        self._nudged = False
        self._called = False
        self._lookouts = Lookouts(
            (*chores, self._hear_call), ledger=post.ledger, clock=post.clock, rank=post.rank, policy=policy
        )
        self.nudgeable = False
        """This process leaves its stacks in its file when it gets the signal for it."""

    @property
    def path(self) -> Path:
        """The file for stacks; empty while all is well."""
        return self._files.path_of(self._post.rank)

    @property
    def folder(self) -> Path:
        """Where stacks are kept."""
        return self._files.folder

    def __enter__(self) -> Self:
        """Tell of a worker that the outer timer ended here before, then watch."""
        self._watched = threading.get_ident()
        self._tell_untold()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("w", encoding="utf-8")
        self._arm(self._policy.interpreter_s)
        if signal.getsignal(STACKS_SIGNAL) is signal.SIG_DFL:  # the user's own handler stays
            faulthandler.register(STACKS_SIGNAL, file=self._file, all_threads=True)  # for as long as the process lives
            self.nudgeable = True
        self._lookouts.start(self._over)
        threading.Thread(target=self._watch, name="failsoft-watchdog", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Watch no longer."""
        self._over.set()
        faulthandler.cancel_dump_traceback_later()

    def joins(self, muster: Muster | None) -> None:
        """From here on this worker calls the others of its group, and hears them; None: there are no others."""
        self._muster = muster

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
        """One look around, then judge; for whoever has no threads for it."""
        self._lookouts.look()
        self.judge()

    def judge(self) -> None:
        """When the phase is overdue, end the process. Waits for no storage while all is well."""
        self._lookouts.judge()
        mark = self._mark
        if self._patience.look(mark, mark.phase, self._post.clock.monotonic_s()):
            self._give_up(mark)
        elif self._muster is not None and self._called:
            self._answer(mark, self._muster)

    def _hear_call(self) -> None:
        self._called = self._muster is not None and self._muster.called()

    def _watch(self) -> None:
        while not self._over.wait(self._policy.tick_s):
            self.judge()
            if not self._over.is_set():
                self._arm(self._policy.interpreter_s)

    def _arm(self, after_s: float) -> None:
        if self._file is not None:
            faulthandler.dump_traceback_later(after_s, exit=True, file=self._file)

    def _give_up(self, mark: Mark) -> None:
        """When the disk hangs, the timer ends us. One that refuses costs the others' words: ours go to the log then."""
        self._arm(_LAST_WORDS_S + 2.0 * self._policy.muster_s)
        first = self._calls()
        limit_s = self._policy.limit_s(mark.phase)
        where = innermost(self._watched) or "no call"
        why = f"{mark.phase} at batch {mark.position} takes longer than its {limit_s:g} s; it is in {where}"
        self._leave_stacks("hang", why, mark, limit_s=limit_s)
        with suppress(OSError):
            if self._muster is not None and first:
                self._report(self._muster, mark)
            elif self._muster is not None:
                self._muster.await_told(2.0 * self._policy.muster_s)
        self._end(EXIT_HUNG)

    def _calls(self) -> bool:
        """Call the others; returns whether this rank is the first. Storage that takes no call reaches nobody."""
        try:
            return self._muster is not None and self._muster.call()
        except OSError:
            self._muster = None
            return False

    def _answer(self, mark: Mark, muster: Muster) -> None:
        """Another rank ends for a hang: say where this one stands, and help those who can't. It is ended by others."""
        now_s = self._post.clock.monotonic_s()
        if self._answered_s is None:
            self._answered_s = now_s
            where = innermost(self._watched) or "no call"
            why = f"another rank hangs; this one is in {mark.phase} at batch {mark.position}, in {where}"
            self._leave_stacks("hang_witness", why, mark)
        elif not self._nudged and not now_s - self._answered_s < self._policy.muster_s / 2.0:
            self._nudged = True
            muster.nudge_silent()

    def _leave_stacks(self, kind: str, why: str, mark: Mark, **data: object) -> None:
        """In the file, in the ledger, and for the other ranks; the last only once the ledger has them."""
        frame, where = frame_of(self._watched), innermost(self._watched)
        stacks = stacks_of_all_threads(first=self._watched)
        with suppress(OSError):
            if self._file is not None:
                self._file.write(f"{why}\n{stacks}\n")
                self._file.flush()
            self._kept = self._kept or self._files.set_aside(self._post.rank)
        self._post.ledger.record(
            kind,
            why,
            phase=mark.phase,
            position=mark.position,
            rank=self._post.rank,
            since_s=round(self._patience.since_s, 3),
            where=where,
            stacks=bounded(stacks),
            file=str(self._kept or self.path),
            **data,
        )
        if self._muster is not None:
            rank, standing = self._post.rank, standing_of(frame)
            said = Statement(rank=rank, phase=mark.phase, position=mark.position, standing=standing, where=where)
            try:
                self._muster.say(said)
            except OSError:  # a report without our own word would blame us
                self._muster = None

    def _report(self, muster: Muster, mark: Mark) -> None:
        """Say who stands where and who is probably to blame, once all ranks have spoken or had the time to."""
        said = muster.heard(self._policy.muster_s / 2.0)
        if len(said) < muster.world:
            muster.nudge_silent()
            said = muster.heard(self._policy.muster_s / 2.0)
        silent = [rank for rank in range(muster.world) if rank not in said]
        for rank in silent:
            self._tell_nudged(rank)
        suspicion = suspect(said, muster.world)
        names = ", ".join(map(str, suspicion.ranks)) or "unknown"
        stands = "; ".join(said[rank].in_words() for rank in sorted(said))
        self._post.ledger.record(
            "hang_report",
            f"probably to blame: rank {names} ({suspicion.why}). {stands}",
            position=mark.position,
            suspects=list(suspicion.ranks),
            silent=silent,
            stands={str(rank): statement.in_words() for rank, statement in said.items()},
        )
        muster.told()

    def _tell_nudged(self, rank: int) -> None:
        """What a rank without a word left in its file when it was sent the signal, if it was and could."""
        stacks = self._files.text_of(rank)
        if stacks:
            why = f"rank {rank} said nothing; its stacks were left without its Python"
            kept = self._files.set_aside(rank)
            self._post.ledger.record("hang_witness", why, rank=rank, stacks=bounded(stacks), file=str(kept))

    def _tell_untold(self) -> None:
        """The outer timer writes stacks and no ledger; the next worker of this rank says what it finds."""
        stacks = self._files.text_of(self._post.rank)
        if not stacks:
            return
        kept = self._files.set_aside(self._post.rank)
        why = f"Python stood still for {self._policy.interpreter_s:g} s in the worker before; its stacks are in {kept}"
        self._post.ledger.record("hang", why, rank=self._post.rank, stacks=bounded(stacks), file=str(kept))


class NoWatch:
    """Nobody watches."""

    def begins(self, position: int) -> None:
        """Nothing to tell."""

    def during(self, phase: WatchPhase) -> AbstractContextManager[None]:
        """Nothing to tell."""
        return nullcontext()
