"""What one may ask of the intent and NER job."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from failsoft.artifacts.address import refuse_address
from failsoft.artifacts.home import refuse_run_name
from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.faults import FaultPlan
from failsoft.training.checkpoints.cadence import Cadence
from failsoft.training.checkpoints.mirror_policy import MirrorPolicy
from failsoft.training.checkpoints.retention import Best, Every, Last
from failsoft.training.escalation import Poisoned
from failsoft.training.letters.deadletters import LetterPolicy
from failsoft.training.memory.rungs import MemoryPolicy
from failsoft.training.pace.policy import PacePolicy, RemedyPolicy
from failsoft.training.relief_policy import ReliefPolicy
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from failsoft.training.spikes import SpikePolicy
from failsoft.training.survival.fabric import FabricConfig
from failsoft.training.survival.growth import ResizePolicy
from failsoft.training.survival.notice import NoticePolicy
from failsoft.training.survival.preflight import PreflightPolicy
from failsoft.training.survival.preflight_faults import NodeFault
from failsoft.training.survival.room import WorkerRange
from failsoft.training.survival.warmth import SparePolicy
from failsoft.training.survival.watch_policy import WatchPolicy
from failsoft.training.trackers.tracker import Address
from failsoft.training.validation_plan import ValidationPlan
from train_jobs.driver_watch import DriverWatchPolicy
from train_jobs.storage import StoragePolicy


class Preset(StrEnum):
    """A recipe: network, batch, length, learning rate."""

    DEMO = "demo"
    """The embedded corpus in well under a minute."""
    EMBEDDED = "embedded"
    """The embedded corpus, trained to its end."""
    SNIPS = "snips"
    """Real input of the size of SNIPS: 13,000 sentences in under six minutes on two cores."""


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """One training run, from data to release."""

    home: Path
    """Root of all files."""
    run: str
    """Name of the run. The same name again goes on where it stopped."""
    data: Path | None = None
    """Folder of a corpus in its published form; None takes the embedded corpus."""
    preset: Preset | None = None
    """The recipe; None takes the one that fits the corpus."""
    workers: int | tuple[int, int] = 1
    """A fixed number, or the least and the most: then each attempt has as many as the cluster can hold."""
    threads_per_worker: int = 1
    """Threads of torch and CPUs asked of Ray for each worker."""
    gpu: bool = False
    """Give each worker a GPU: mixed precision where it has one, NCCL between workers."""
    seed: int = 7
    """Of the weights, of dropout and of the order of samples."""
    faults: FaultPlan = field(default_factory=FaultPlan)
    """Planned faults; empty in production."""
    snapshot_every_steps: int = 100
    """Applied updates between two snapshots in memory: what a killed worker repeats at most."""
    snapshot_place: SnapshotPlace = SnapshotPlace.EACH_RANK
    """Which worker's RAM holds a snapshot: each one's all of it, rank 0's, or equal shares."""
    snapshots_outlive: bool = True
    """Keep snapshots where they outlive a worker that is killed: in memory of its host (``/dev/shm``)."""
    poisoned: Poisoned = Poisoned.SKIP
    """What becomes of the batches that a rollback undid: passed over with dead letters, or met again."""
    checkpoint_every_steps: int = 2000
    """Applied updates between two checkpoints on disk."""
    node_mtbf_s: float | None = None
    """Mean time between failures of one node: checkpoints come when it wastes least, instead of by steps."""
    checkpoint_every_s: float | None = None
    """Also a checkpoint when so much time has passed."""
    checkpoint_at_epoch_end: bool = False
    """Also one when an epoch is over."""
    keep_last: int = 3
    """Newest checkpoints that stay."""
    keep_best: int = 1
    """Checkpoints of the lowest loss that also stay: of validation, where that is looked at."""
    keep_every_hours: float | None = None
    """One for each so many hours stays for good."""
    remote: str | None = None
    """Address of a store that checkpoints are copied to, and that a run without local ones goes on from: s3://…"""
    remote_stop_after_s: float | None = None
    """Stop when no copy could be made for so long; None: trouble with the remote store alone stops nothing."""
    epochs: int | None = None
    """Passes over the samples, over which the learning rate falls as well; None takes the preset's."""
    max_batches: int | None = None
    """End after so many global batches, sooner than the epochs would; None takes them all."""
    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)
    """Waits of the supervisor between attempts."""
    resize: ResizePolicy = field(default_factory=ResizePolicy)
    """How eager a run with fewer workers than it may have is to grow."""
    ray_patience_s: float = 600.0
    """How long a supervisor waits for a Ray to connect to, before it ends and leaves the rest to who started it."""
    storage: StoragePolicy = field(default_factory=StoragePolicy)
    """How long the supervisor waits for the run's storage when that is away between attempts."""
    driver_watch: DriverWatchPolicy = field(default_factory=DriverWatchPolicy)
    """How long the process that holds the workers may stand still."""
    loss_spikes: SpikePolicy | None = None
    """Also refuse a batch whose loss is far above what it usually is; None: only what is not finite."""
    relief: ReliefPolicy | None = None
    """A lower learning rate for a while after a refused batch; None: only rollbacks lower it."""
    letters: LetterPolicy = field(default_factory=LetterPolicy)
    """What dead letters keep of the batches that they are about."""
    memory: MemoryPolicy = field(default_factory=MemoryPolicy)
    """What is done, in which order, when memory runs out or grows short."""
    preflight: PreflightPolicy | None = field(default_factory=PreflightPolicy)
    """Look at each node before each attempt, and keep away from one that is not fit; None: never."""
    validate_every_steps: int | None = None
    """Look at the validation split after so many applied steps; None: not by steps."""
    validate_at_epoch_end: bool = False
    """Also look when an epoch is over."""
    pace: PacePolicy | None = field(default_factory=PacePolicy)
    """How slow workers are found and named; None: nobody looks."""
    pace_remedy: RemedyPolicy | None = None
    """How others take over part of a slow worker's samples; None: it is only named."""
    node_faults: tuple[NodeFault, ...] = ()
    """Planned faults that a preflight meets; empty in production."""
    watch: WatchPolicy = field(default_factory=WatchPolicy)
    """How long a worker may stand still."""
    notice: NoticePolicy = field(default_factory=NoticePolicy)
    """How long workers have to leave."""
    fabric: FabricConfig = field(default_factory=FabricConfig)
    """The network between workers."""
    spares: SparePolicy = field(default_factory=SparePolicy)
    """Warm processes that stand by for a restart of the workers."""
    track: tuple[str, ...] = ()
    """Trackers that follow the run: ``tensorboard:FOLDER``, ``mlflow:URI``, ``wandb:PROJECT``."""
    record_consumed: bool = False
    """Write down the ids of all batches that the run consumes, so that ``failsoft verify`` can judge it."""
    publish: bool = True
    """Publish a release at the end."""

    def need(self) -> dict[str, float]:
        """What Ray is asked for each worker."""
        return {"CPU": float(self.threads_per_worker)} | ({"GPU": 1.0} if self.gpu else {})

    @property
    def validation(self) -> ValidationPlan:
        """How often the model is looked at."""
        return ValidationPlan(every_steps=self.validate_every_steps, at_epoch_end=self.validate_at_epoch_end)

    def keeping(self) -> tuple[Last | Best | Every, ...]:
        """The rules by which checkpoints stay."""
        metric = "val_loss" if self.validation.looks else "loss"
        best = (Best(metric=metric, count=self.keep_best),) if self.keep_best else ()
        milestones = () if self.keep_every_hours is None else (Every(hours=self.keep_every_hours),)
        return (Last(count=self.keep_last), *best, *milestones)

    def mirroring(self) -> MirrorPolicy:
        """How patient the run is with its remote store."""
        if self.remote is not None:
            refuse_address(self.remote)
        return MirrorPolicy(stop_after_s=self.remote_stop_after_s)

    def trackers(self) -> tuple[Address, ...]:
        """Where the run is followed."""
        found = tuple(Address.parse(text) for text in self.track)
        if len(set(found)) < len(found):
            raise ConfigError(f"track is {', '.join(self.track)}; name each tracker once")
        return found

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        self.keeping()
        self.trackers()
        Cadence(every_steps=self.checkpoint_every_steps, every_s=self.checkpoint_every_s)
        refuse_run_name(self.run)
        self.mirroring()
        if self.data is not None and not self.data.is_dir():
            raise ConfigError(f"data is {self.data}, which is no folder; leave it out to train on the embedded corpus")
        most = WorkerRange.of(self.workers).most
        if not self.ray_patience_s >= 0.0:
            raise ConfigError(f"ray_patience_s is {self.ray_patience_s}; use 0 or more seconds")
        self._refuse_counts_below_one()
        self._refuse_hasty_watch()
        for fault in self.faults.faults:
            if fault.rank >= most:
                raise ConfigError(
                    f"faults plan {fault.kind} for rank {fault.rank}, and the ranks of {most} workers end at "
                    f"{most - 1}: it would never strike"
                )

    def _refuse_counts_below_one(self) -> None:
        at_will = {name: "or None for the preset's length" for name in ("epochs", "max_batches")}
        needed = dict.fromkeys(("threads_per_worker", "snapshot_every_steps", "checkpoint_every_steps"), "")
        for name, rather in (needed | at_will).items():
            given = getattr(self, name)
            if given is not None and given < 1:
                raise ConfigError(f"{name} is {given}; use 1 or more{rather and f', {rather}'}")

    def _refuse_hasty_watch(self) -> None:
        """The third line must not be faster than those before it."""
        third_s, before_s = self.driver_watch.attempt_s, max(self.watch.silence_s, self.watch.start_up_s)
        if not third_s > before_s:
            raise ConfigError(
                f"attempt_s of the driver's watch is {third_s}, and the watch before it may take {before_s} s; use more"
            )
