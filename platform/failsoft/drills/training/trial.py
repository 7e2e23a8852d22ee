"""One trial of a train script: started as often as a user would, and looked at between and after."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from failsoft.drills.fault import DrillFault
from failsoft.drills.training.attempt import Attempt, Patience, Watcher
from failsoft.drills.training.command import TrainCommand
from failsoft.drills.training.damage import DAMAGING, damage
from failsoft.drills.training.folder_look import newest_large, torn_files
from failsoft.drills.training.inside.marks import Marks
from failsoft.drills.training.inside.orders import Orders, Strike
from failsoft.drills.training.inside.trouble import DISK_KINDS
from failsoft.drills.training.launch import Launcher, Start
from failsoft.health.clock import Clock

MAX_STARTS = 4
"""A command that has not finished after so many does not."""
_LEAVERS = frozenset({DrillFault.SIGTERM, DrillFault.DRAIN})


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all trials of one command share."""

    command: TrainCommand
    launcher: Launcher
    patience: Patience
    clock: Clock
    checkpoint: str | None = None
    """Pattern of the files that a restart reads; None: the newest large one."""


@dataclass(kw_only=True)
class Trial:
    """Folders of one trial, and what became of it."""

    bench: Bench
    folder: Path
    strikes: Sequence[Strike] = ()
    leave_out: int | None = None
    rewinds: bool = False
    below: str = ""
    """Where the largest saves of the quiet run lie."""
    due: int = 0
    """Backward passes of the quiet run; a run that was told to leave and did fewer is started again."""
    attempts: list[Attempt] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """What the drill did between starts, in words."""

    def __post_init__(self) -> None:
        """Nothing is made yet."""
        self.folder = self.folder.resolve()  # the processes of the run have another working directory
        self.run = self.folder / "run"
        self.marks = Marks(self.folder / "marks")
        self._name = uuid.uuid4().hex
        self._damaged: set[Path] = set()
        self._undone = [strike for strike in self.strikes if strike.fault.kind in DAMAGING]
        self._carried_out: set[str] = set()

    def carry_out(self) -> None:
        """Start until it has finished, or a user would give up."""
        self.run.mkdir(parents=True)
        self.marks.folder.mkdir()
        orders = self.folder / "orders.json"
        told = Orders(
            run=self.run,
            marks=self.marks.folder,
            strikes=tuple(self.strikes),
            leave_out=self.leave_out,
            rewinds=self.rewinds,
        )
        told.write(orders)
        watcher = Watcher(self.bench.launcher, self.marks, self.bench.patience, self.bench.clock)
        try:
            while self._goes_on():
                self.attempts.append(watcher.carry_out(self._start(orders)))
                self._look()
        finally:
            watcher.clear(self._name)
            self._forget_memory()

    @property
    def struck(self) -> frozenset[str]:
        """Names of the faults that came to strike.

        A disk that nobody met, or a checkpoint that could not be damaged, was no fault: somebody inside may have
        started the killed process again before the drill could.
        """
        marks = self.marks.read()
        names = {str(mark["name"]) for mark in marks if mark["what"] == "struck"}
        met = {str(mark["name"]) for mark in marks if mark["what"] == "met"}
        idle = {strike.name for strike in self.strikes if strike.fault.kind in DISK_KINDS} - met
        spared = {strike.name for strike in self.strikes if strike.fault.kind in DAMAGING} - self._carried_out
        return frozenset(names - idle - spared)

    def _start(self, orders: Path) -> Start:
        return Start(
            command=self.bench.command,
            run=self.run,
            orders=orders,
            log=self.folder / "output.log",
            trial=self._name,
            attempt=len(self.attempts) + 1,
        )

    def _goes_on(self) -> bool:
        if not self.attempts:
            return True
        if len(self.attempts) >= MAX_STARTS or not self.strikes:
            return False
        last = self.attempts[-1]
        if last.status != 0 or last.hung:
            return True
        return self._was_told_to_leave() and sum(attempt.backwards for attempt in self.attempts) < self.due

    def _was_told_to_leave(self) -> bool:
        kinds = {strike.fault.kind for strike in self.strikes if strike.name in self.struck}
        return len(self.attempts) == 1 and bool(kinds & _LEAVERS)

    def _look(self) -> None:
        """Torn files count as a reader would have found them, before anybody mends them."""
        self.torn += [one for one in torn_files(self.run, known=self._damaged) if one not in self.torn]
        if self.attempts[-1].status != 0 and self._undone:
            self._forget_memory()
            for strike in self._undone:
                self._damage(strike)
            self._undone = []

    def _damage(self, strike: Strike) -> None:
        victim = newest_large(self.run, self.bench.checkpoint, below=self.below)
        if victim is None:
            self.done.append("there was no checkpoint to damage")
            return
        self._damaged |= {victim, *victim.parent.glob("manifest.json")}
        self.done.append(damage(victim, strike.fault))
        self._carried_out.add(strike.name)

    def _forget_memory(self) -> None:
        """Its snapshots in memory of the host: of a checkpoint that is read again, the machine is another one."""
        shutil.rmtree(self._start(self.folder).memory, ignore_errors=True)
