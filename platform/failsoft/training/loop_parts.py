"""What a training loop is given, and the parts that follow from it; each is made when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from failsoft.errors import ConfigError
from failsoft.training.batch_work import BatchWork
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Breaker
from failsoft.training.callbacks import Callbacks, Listener
from failsoft.training.checkpoints.checkpoint import Checkpoints, identity_digest
from failsoft.training.chronicle import Chronicle, Desk
from failsoft.training.course import Course
from failsoft.training.degradation import Degradations
from failsoft.training.endings import Endings
from failsoft.training.guard import StepGuard
from failsoft.training.letters.letter_office import LetterOffice
from failsoft.training.loading.weighing import Loads
from failsoft.training.loop_plan import LoopPlan, Task, Validation
from failsoft.training.lower_rate import LowerRate
from failsoft.training.memory.net import MemoryNet
from failsoft.training.owed_look import OwedLook
from failsoft.training.pace.keeper import PaceKeeper
from failsoft.training.pace.schedule import FollowsShares
from failsoft.training.ranks import MayBeAskedToSave
from failsoft.training.recovery import Recovery
from failsoft.training.samples import SampleCount
from failsoft.training.saving import Saving
from failsoft.training.snapshots.snapshot import RamSnapshots
from failsoft.training.state import TrainingState
from failsoft.training.succession import Succession
from failsoft.training.survival.watchdog import NoWatch, Watch


@dataclass(kw_only=True)
class LoopParts:
    """The parts of one rank of one run. They belong together: guard, snapshots and checkpoints work on ``state``."""

    state: TrainingState
    task: Task
    batches: GlobalBatches
    plan: LoopPlan
    guard: StepGuard
    breaker: Breaker
    checkpoints: Checkpoints
    desk: Desk
    watch: Watch = field(default_factory=NoWatch)
    told: Callable[[], str | None] = lambda: None  # why all ranks shall leave now, the same on all
    validation: Validation | None = None
    listeners: Sequence[Listener] = ()  # loggers and the like, which may fail; rank 0 calls them

    def __post_init__(self) -> None:
        """Nothing is opened or read yet."""
        self._ranks = self.guard.ranks
        self._asked = self._ranks if isinstance(self._ranks, MayBeAskedToSave) else None
        self.state.guard = self.guard if self.state.guard is None else self.state.guard
        self.state.ema = self.guard.ema if self.state.ema is None else self.state.ema
        self._snapshots = RamSnapshots(self.state, ranks=self._ranks, policy=self.plan.snapshots)
        self._office = self._letters()
        self._chronicle = Chronicle(self.desk, self.state, self.breaker, self._office)
        self.breaker.on_move = self._chronicle.moved
        self._course = Course(batches=self.batches, planned=self.plan.total_batches)
        self._samples = SampleCount(self.task, self._ranks)
        self.degradations = Degradations(self._chronicle.tell)
        self._rate = LowerRate(self.guard.relief, self.degradations)
        self.net = self._net()
        self._pace = self._pace_keeper()
        self._owed = OwedLook(self._chronicle)
        self.state.memory, self.state.samples, self.state.look = self.net.ladder, self._samples, self._owed
        self._callbacks = Callbacks(self.listeners, self._chronicle.tell, self.desk.clock)

    def _pace_keeper(self) -> PaceKeeper | None:
        """Times the guard's passes, as the net has left them; one rank alone has nobody to be slower than."""
        if self.plan.pace is None or self._ranks.world == 1:
            return None
        follower = self.task if isinstance(self.task, FollowsShares) else None
        if self.plan.pace_remedy is not None and isinstance(self.task, Loads) and follower is None:
            raise ConfigError(
                "pace_remedy is set, and the task loads its samples ahead by the even division: each batch would be "
                "loaded twice; give the task its feed's `ahead` and `follow`, or leave pace_remedy out: slow ranks are "
                "named all the same"
            )
        keeper = PaceKeeper(
            self.guard,
            self.desk.clock,
            global_batch=self.batches.global_batch,
            policy=self.plan.pace,
            remedy=self.plan.pace_remedy,
            degradations=self.degradations,
        )
        keeper.tell, self._office.shares_at = self._chronicle.tell, keeper.shares_at
        if follower is not None:
            keeper.led(follower)
        return keeper

    def _way_back(self) -> Recovery:
        return Recovery(
            state=self.state,
            guard=self.guard,
            breaker=self.breaker,
            snapshots=self._snapshots,
            checkpoints=self.checkpoints,
            chronicle=self._chronicle,
            poisoned=self.plan.poisoned,
            seed=self.plan.seed,
        )

    def _letters(self) -> LetterOffice:
        return LetterOffice(
            run_folder=self.desk.folder,
            clock=self.desk.clock,
            model=self.state.model,
            ranks=self._ranks,
            task=self.task,
            guard=self.guard,
            policy=self.desk.letters,
            config_digest=identity_digest(self.checkpoints.identity),
            seed=self.plan.seed,
        )

    def _net(self) -> MemoryNet:
        return MemoryNet(
            guard=self.guard,
            policy=self.plan.memory,
            task=self.task,
            global_batch=self.batches.global_batch,
            degradations=self.degradations,
            run_folder=self.desk.folder,
            clock=self.desk.clock,
            on_retry=lambda position: self.watch.begins(position),  # noqa: PLW0108 -- the watch is set later
        )

    @cached_property
    def _work(self) -> BatchWork:
        return BatchWork(
            state=self.state,
            task=self.task,
            net=self.net,
            chronicle=self._chronicle,
            samples=self._samples,
            desk=self.desk,
            ranks=self._ranks,
            pace=self._pace,
        )

    @cached_property
    def _succession(self) -> Succession:
        return Succession(
            state=self.state,
            plan=self.plan,
            checkpoints=self.checkpoints,
            snapshots=self._snapshots,
            chronicle=self._chronicle,
            desk=self.desk,
            ranks=self._ranks,
        )

    @cached_property
    def _saving(self) -> Saving:
        return Saving(
            state=self.state,
            plan=self.plan,
            batches=self.batches,
            snapshots=self._snapshots,
            checkpoints=self.checkpoints,
            chronicle=self._chronicle,
            ranks=self._ranks,
            clock=self.desk.clock,
            watch=self.watch,
            succession=self._succession,
        )

    @cached_property
    def _endings(self) -> Endings:
        return Endings(
            state=self.state,
            task=self.task,
            batches=self.batches,
            breaker=self.breaker,
            chronicle=self._chronicle,
            desk=self.desk,
            ranks=self._ranks,
            succession=self._succession,
        )
