"""When a run keeps its state, in RAM and on disk, and how. All ranks decide alike, so nothing here is one rank's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from socket import gethostname
from typing import Any

from failsoft.errors import ArtifactError, ConfigError
from failsoft.health.clock import Clock
from failsoft.training.batches import GlobalBatches
from failsoft.training.checkpoints.best_interval import BestInterval
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.chronicle import Chronicle
from failsoft.training.loop_plan import LoopPlan
from failsoft.training.ranks import Ranks, any_rank
from failsoft.training.snapshots.snapshot import RamSnapshots
from failsoft.training.state import TrainingState
from failsoft.training.succession import SAVED, Succession
from failsoft.training.survival.watch_policy import WatchPhase
from failsoft.training.survival.watchdog import Watch
from failsoft.training.together import judged_together


class Due(StrEnum):
    """What is to be kept of this moment."""

    NOTHING = "nothing"
    SNAPSHOT = "snapshot"
    CHECKPOINT = "checkpoint"
    """On disk, and a snapshot of the same moment: a resumed run rolls back as this one would."""


@dataclass(kw_only=True)
class Saving:
    """Snapshots and checkpoints of one run, each when it is due."""

    state: TrainingState
    plan: LoopPlan
    batches: GlobalBatches
    snapshots: RamSnapshots
    checkpoints: Checkpoints
    chronicle: Chronicle
    ranks: Ranks
    clock: Clock
    watch: Watch
    succession: Succession
    ill: str | None = field(default=None, init=False)
    """Name of the tensor that kept the last snapshot from being taken; the run goes back for it."""

    found: dict[str, float] = field(default_factory=dict, init=False)
    """What a validation found of this very state; empty when there was none. Of an older state it says nothing."""

    def __post_init__(self) -> None:
        """Nothing is taken yet."""
        self._cadence = self.plan.cadence()
        self._snapshot_step = 0
        self._checkpoint_step = 0
        self._checkpoint_s = 0.0
        self._epoch = 0
        self._best: BestInterval | None = None
        self._submitted: int | None = None

    def begin(self) -> str | None:
        """The state is the one to go on from; what :meth:`snapshot` says of it.

        A snapshot that a killed worker left is of a moment between two checkpoints: the count goes on as it was, and
        where a checkpoint was due at that very moment, it is taken now.
        """
        if self.plan.node_mtbf_s is not None:
            nodes = len(set(self.ranks.gather(gethostname())))
            self._best = BestInterval(node_mtbf_s=self.plan.node_mtbf_s, nodes=nodes)
            self._by_best(self._best)
        self._count_from_here()
        self.succession.lay_beside(self._beside)
        inherited = self.succession.inherited
        if not inherited:
            return self.snapshot()
        self._checkpoint_step = min(int(inherited["checkpoint_step"]), self.state.step)  # it may have gone back since
        self._epoch = int(inherited["epoch"])
        self._checkpoint_s -= float(inherited["checkpoint_age_s"])
        self.keep(Due.CHECKPOINT if self._checkpoint_due(meeting=False) else Due.SNAPSHOT)
        return self.ill

    def due(self) -> Due:
        """What is due after an applied step; by time only where the ranks meet, and then rank 0's clock counts."""
        meeting = self.state.step - self._snapshot_step >= self.plan.snapshot_every_steps
        if self._checkpoint_due(meeting=meeting):
            return Due.CHECKPOINT
        return Due.SNAPSHOT if meeting else Due.NOTHING

    def keep(self, due: Due) -> None:
        """Take what is due; an ill state is not kept anywhere, and :attr:`ill` says so."""
        if self.snapshot() is None and due is Due.CHECKPOINT:
            self._submit()

    def keep_as_asked(self) -> None:
        """A checkpoint of this moment, unless it is on disk or on its way there; the schedule counts from it."""
        if self.state.position not in {self._submitted, self.checkpoints.position}:
            self.keep(Due.CHECKPOINT)

    def snapshot(self) -> str | None:
        """Returns the name of the ill tensor that kept it from being taken."""
        began_s = self.clock.monotonic_s()
        self.ill = self.snapshots.take()
        self.chronicle.snapshot(self.snapshots, ill=self.ill, took_s=self.clock.monotonic_s() - began_s)
        self.succession.look()
        self._snapshot_step = self.state.step
        return self.ill

    def keep_in_memory(self) -> None:
        """Before a checkpoint that the workers may not live to see on disk: a copy in RAM takes no disk's time.

        ``ray job stop`` kills after 3 s. Where snapshots outlive the workers, the next group goes on from this one.
        """
        if self.checkpoints.position != self.state.position:
            self._kept_in_memory()

    def went_back(self, *, saved: int | None) -> None:
        """The state is an older, healthy one again.

        Args:
            saved: position of the newest checkpoint before the way back.
        """
        self.ill, self.found, self._submitted = None, {}, None
        self._snapshot_step = self.state.step
        if self.checkpoints.position != saved or self.state.step < self._checkpoint_step:
            self._checkpoint_step, self._epoch = self.state.step, self._epoch_here()

    def publish_final(self) -> bool:
        """Publish the state at the end of the run and wait for it; False when it is ill.

        Raises:
            ArtifactError: the disk refuses.
        """
        with self.watch.during(WatchPhase.CHECKPOINT):
            self.checkpoints.settle()
            if self.checkpoints.position == self.state.position:
                self.checkpoints.finish()
                return True
        if not self._kept_in_memory():
            self.ill = self._ill_anywhere()
        if self.ill is not None:
            return False
        with self.watch.during(WatchPhase.CHECKPOINT), self.chronicle.handing_over():
            if any(self.checkpoints.publish(self.state, self.metrics()) for _ in range(2)):
                self.checkpoints.finish()
                return True
        raise ArtifactError(
            f"the final state of the run could not be written to {self.checkpoints.store.root}; make room on "
            "the disk and start the run again: it goes on from its last checkpoint"
        )

    def metrics(self) -> dict[str, float]:
        """What the rules of keeping may judge a checkpoint of this moment by."""
        metrics = self.found | {"position": float(self.state.position), "step": float(self.state.step)}
        return metrics if self.chronicle.loss is None else metrics | {"loss": self.chronicle.loss}

    def _kept_in_memory(self) -> bool:
        """A snapshot, where there is room for it; :attr:`ill` says what it found. False where none was taken."""
        try:
            self.snapshot()
        except ConfigError as error:  # on all ranks: memory is short, and the disk may take it all the same
            self.chronicle.tell("snapshot_withheld", str(error))
            return False
        return True

    def _ill_anywhere(self) -> str | None:
        """As a snapshot would have found; the same answer on all ranks, but for the name."""
        return judged_together(self.ranks, self.state)[1]

    def _checkpoint_due(self, *, meeting: bool) -> bool:
        steps, ended = self.state.step - self._checkpoint_step, self._epoch_here() > self._epoch
        if self._cadence.due(steps=steps, epoch_ended=ended) is not None:
            return True
        if not meeting or self._cadence.every_s is None:
            return False
        elapsed_s = self.clock.monotonic_s() - self._checkpoint_s
        late = self._cadence.due(steps=steps, elapsed_s=elapsed_s) is not None
        return any_rank(self.ranks, late and self.ranks.rank == 0)

    def _epoch_here(self) -> int:
        """Counted, so that an epoch whose last batch was refused still ends: at the next update."""
        return self.state.position // self.batches.batches_per_epoch

    def _beside(self) -> dict[str, Any]:
        """Beside a snapshot that may outlive this worker: where the count of checkpoints stands."""
        return {
            SAVED: -1 if self.checkpoints.position is None else self.checkpoints.position,
            "checkpoint_step": self._checkpoint_step,
            "checkpoint_age_s": self.clock.monotonic_s() - self._checkpoint_s,
            "epoch": self._epoch,
        }

    def _count_from_here(self) -> None:
        self._checkpoint_step, self._checkpoint_s = self.state.step, self.clock.monotonic_s()
        self._epoch = self._epoch_here()

    def _by_best(self, best: BestInterval) -> None:
        """Rank 0's measure counts, since its clock does; the others only know that time makes a checkpoint due."""
        self._cadence = replace(self._cadence, every_s=best.interval_s)
        said = best.news()
        if said is not None:
            data = {"interval_s": best.interval_s, "cost_s": best.cost_s, "mtbf_s": best.setting.mtbf_s}
            self.chronicle.tell("checkpoint_interval", said, **data)

    def _submit(self) -> None:
        self._count_from_here()
        self._submitted = self.state.position
        with self.watch.during(WatchPhase.CHECKPOINT), self.chronicle.handing_over():
            self.checkpoints.submit(self.state, self.metrics(), judged=True)
        if self._best is not None:
            self._best.cost(self.clock.monotonic_s() - self._checkpoint_s)
            self._by_best(self._best)
