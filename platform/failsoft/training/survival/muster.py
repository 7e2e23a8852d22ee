"""The ranks of one group tell each other of a hang, by files in the run's folder, before the group is ended.

Ray and torchrun end all ranks as soon as one has ended. Whoever's patience ends first therefore calls the others, and
waits a moment for what they have to say: else only the stacks of a rank that waited for the culprit would be left. The
network is no way for it, since that may be what hangs; the call of a rank must not wait for its training thread either.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from failsoft.health.clock import Clock
from failsoft.training.ranks import Ranks
from failsoft.training.survival.process_mark import ProcessMark, mark_of
from failsoft.training.survival.suspicion import Statement, statement_of

_PREFIX = "group-"
_TOLD = "told"
_LOOK_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Muster:
    """One rank's view of its group."""

    folder: Path
    """Of this group alone, and there from the first call on: making a folder is one act, on any storage."""
    rank: int
    processes: tuple[ProcessMark, ...]
    """Of all ranks, in order."""
    clock: Clock

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return len(self.processes)

    def call(self) -> bool:
        """Call all ranks; returns whether nobody else had done so before."""
        try:
            self.folder.mkdir(parents=True)
        except FileExistsError:
            return False
        return True

    def called(self) -> bool:
        """Whether anybody has called; storage that is away is no call."""
        return os.path.exists(self.folder)  # Path.exists raises then

    def say(self, statement: Statement) -> None:
        """Say where this rank stands."""
        path = self.folder / f"rank-{self.rank}.json"
        aside = path.with_suffix(".aside")
        aside.write_text(statement.to_json(), "utf-8")
        aside.replace(path)

    def statements(self) -> dict[int, Statement]:
        """What was said so far, by rank."""
        found = {rank: self._said_by(rank) for rank in range(self.world)}
        return {rank: said for rank, said in found.items() if said is not None}

    def heard(self, patience_s: float) -> dict[int, Statement]:
        """What all ranks say, or those of them who do within ``patience_s``."""
        self._until(lambda: len(self.statements()) == self.world, patience_s)
        return self.statements()

    def nudge_silent(self) -> None:
        """Have ranks of this machine that said nothing leave their stacks in their file, without their Python."""
        said = self.statements()
        for rank, process in enumerate(self.processes):
            if rank not in said and rank != self.rank:
                process.nudge()

    def told(self) -> None:
        """Whoever called first has written down what came of it."""
        (self.folder / _TOLD).touch()

    def await_told(self, patience_s: float) -> None:
        """Wait until that is so, or for ``patience_s``: the first rank to end is the end of all."""
        self._until((self.folder / _TOLD).exists, patience_s)

    def _until(self, holds: Callable[[], bool], patience_s: float) -> None:
        until_s = self.clock.monotonic_s() + patience_s
        while not holds() and self.clock.monotonic_s() < until_s:
            self.clock.sleep_s(_LOOK_S)

    def _said_by(self, rank: int) -> Statement | None:
        try:
            return statement_of((self.folder / f"rank-{rank}.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None


def muster_of(ranks: Ranks, hangs: Path, clock: Clock, *, nudgeable: bool) -> Muster | None:
    """A muster for this group; all ranks call it together. None for a rank that is alone.

    Args:
        ranks: bare.
        hangs: the folder for stacks.
        clock: waits.
        nudgeable: this process leaves its stacks when it gets the signal for it.
    """
    if ranks.world == 1:
        return None
    mine = mark_of(os.getpid()) if nudgeable else ProcessMark(process=0)
    said = ranks.gather(json.dumps({"name": f"{_PREFIX}{clock.wall_s():.6f}-{os.getpid()}"} | asdict(mine)))
    if ranks.rank == 0:
        _sweep(hangs)
    bodies = [json.loads(text) for text in said]  # of our own processes, in this very moment
    name = bodies[0]["name"]
    processes = tuple(ProcessMark(**{key: body[key] for key in asdict(mine)}) for body in bodies)
    return Muster(folder=hangs / name, rank=ranks.rank, processes=processes, clock=clock)


def _sweep(hangs: Path) -> None:
    """Groups before this one have ended; what their ranks said is in the ledger."""
    with suppress(OSError):  # what can't be removed disturbs nobody
        for folder in hangs.glob(f"{_PREFIX}*"):
            shutil.rmtree(folder, ignore_errors=True)
