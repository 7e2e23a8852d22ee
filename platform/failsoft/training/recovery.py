"""Carries the remedies of :mod:`failsoft.training.escalation` out on a live run. All ranks act together, alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from failsoft.training.breaker import Breaker, RunState
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.chronicle import Chronicle, WayBack
from failsoft.training.course import Course
from failsoft.training.escalation import Poisoned, Remedy
from failsoft.training.guard import StepGuard
from failsoft.training.snapshots.snapshot import RamSnapshots
from failsoft.training.state import TrainingState


@dataclass(kw_only=True)
class Recovery:
    """The way back of one rank."""

    state: TrainingState
    guard: StepGuard
    breaker: Breaker
    snapshots: RamSnapshots
    checkpoints: Checkpoints
    chronicle: Chronicle
    poisoned: Poisoned
    seed: int

    def go_back(self, why: str, *, course: Course, give_up: Callable[[str], Exception]) -> None:
        """Carry out the next remedy at this place.

        Args:
            why: which trouble.
            course: the batches, for the letters of those that are undone.
            give_up: makes the error that ends the run, when nothing is left to try.
        """
        remedy = self.breaker.remedy()
        if remedy is Remedy.DISK and not self._to_disk(why, course):
            remedy = self.breaker.remedy()
        elif remedy is Remedy.DISK:
            return
        if remedy is Remedy.STOP:
            raise give_up(why)
        self._to_snapshot(remedy, why, course)

    def _to_snapshot(self, remedy: Remedy, why: str, course: Course) -> None:
        self.breaker.life.move(RunState.ROLLING_BACK, why=why)
        before, scale = self._here(), self._loss_scale()
        mark = self.snapshots.restore()
        if remedy is Remedy.SNAPSHOT_SLOWER:
            self._slow_down()
        self._settle(remedy, why, before, course)
        self._keep_scale_down(scale)
        self.breaker.life.move(RunState.RUNNING, why=f"back at step {mark.step}")

    def _to_disk(self, why: str, course: Course) -> bool:
        """False when there is no checkpoint before the snapshot that did not help; it counts as tried, too."""
        self.breaker.life.move(RunState.BACK_TO_DISK, why=why)
        before, scale, newest = self._here(), self._loss_scale(), self.snapshots.newest
        limit = before.step if newest is None else newest.step
        restored = self.checkpoints.restore(self.state, seed=self.seed, before_step=limit, keep_counts=True)
        if restored is None:
            missing = f"{why}; there is no checkpoint before step {limit}"
            self.breaker.tried(Remedy.DISK, position=before.position, why=missing)
            self.breaker.life.move(RunState.RUNNING, why=missing)
            return False
        self._withdraw(after=restored.position)
        self._slow_down()
        self._settle(Remedy.DISK, why, before, course)
        self._keep_scale_down(scale)
        healthy = self.snapshots.take() is None  # the one in RAM is of the moment that did not help
        if self.poisoned is Poisoned.SKIP:
            self._save(judged=healthy)
        self.breaker.life.move(RunState.RUNNING, why=f"back at {restored.name}")
        return True

    def _here(self) -> WayBack:
        return WayBack(position=self.state.position, step=self.state.step, burst=self.breaker.in_a_row)

    def _settle(self, remedy: Remedy, why: str, before: WayBack, course: Course) -> None:
        """The state is an older one; now position, counts, letters and ledger follow."""
        to, replays = self.state.position, self.poisoned is Poisoned.REPLAY
        if not replays:
            self.state.position = before.position
        self.chronicle.rolled_back(why, before=before, to=to, remedy=remedy, replays=replays)
        if not replays:
            self.chronicle.buried(range(to, before.position - before.burst), course)
        self.breaker.rolled_back(remedy=remedy, position=before.position, why=why, replays=replays)

    def _slow_down(self) -> None:
        """To the escalation's share of the rate, unless it is lower still."""
        relief, factor = self.guard.relief, self.breaker.policy.escalation.lower_rate_factor
        if relief.factor > factor:
            relief.lower(factor / relief.factor)

    def _loss_scale(self) -> float | None:
        return None if self.state.scaler is None else self.state.scaler.state_dict().get("scale")

    def _keep_scale_down(self, scale: float | None) -> None:
        """A loss scale that backed off stays there: the older one is what overflowed, and would for ever."""
        scaler = self.state.scaler
        if scaler is not None and scale is not None and scale < scaler.state_dict().get("scale", scale):
            scaler.load_state_dict(scaler.state_dict() | {"scale": scale, "_growth_tracker": 0})

    def _withdraw(self, *, after: int) -> None:
        """Checkpoints of the undone stretch go before anything says that it is undone, and snapshots that outlive this.

        A run that is killed afterwards would go on from the newest, with updates in its weights that letters call dead;
        and where positions are met again, the old ones must not stand for the new ones of the same names.
        """
        self.snapshots.room.withdraw(after=after)
        if self.guard.ranks.rank == 0:
            for name in self.checkpoints.withdraw(after=after):
                self.chronicle.withdrew(name)
        self.guard.ranks.gather("what was undone is withdrawn")

    def _save(self, *, judged: bool) -> None:
        """A restart goes on from here, instead of finding out once more what did not help."""
        with self.chronicle.handing_over():
            where = {"position": float(self.state.position), "step": float(self.state.step)}
            self.checkpoints.submit(self.state, where, judged=judged)
