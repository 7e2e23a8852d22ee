"""A task of your own on Ray: own model, own samples, and all that keeps a run going.

Say in a function what is learnt, put it into an :class:`OwnJob`, call :func:`train_own`; ``docs/own_job.py`` does. The
run has checkpoints, snapshots that outlive a worker, the memory ladder, restarts, resizes and validation, and
``failsoft runs``, ``goodput``, ``report``, ``ckpt``, ``preempt`` know it.

Unlike ``failsoft train``, this process holds the workers itself: when it is killed, start the same script again.
Importing this loads neither Ray nor torch.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from failsoft.artifacts.home import Home
from failsoft.artifacts.store import Artifact
from failsoft.errors import ConfigError, FailsoftError, NoProgressError
from failsoft.health.clock import Clock, SystemClock
from failsoft.training.checkpoints.driver_lock import sole_driver, sole_trainer
from failsoft.training.letters.requeue import read_requeue
from failsoft.training.progress import Phase, ProgressFile
from failsoft.training.survival.notice import Notice, passing_on, read_notice
from failsoft.training.survival.supervise import RestartPolicy
from train_jobs.attempts import Attempts
from train_jobs.config import JobConfig
from train_jobs.connect import connected
from train_jobs.crew import Crew
from train_jobs.entry import hearing
from train_jobs.exporting import exporting
from train_jobs.prepared import prepared_corpus
from train_jobs.supervised import plan_of_crew, storage_of

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from failsoft.training.loop_plan import Task
    from failsoft.training.validation_look import Validates


@dataclass(kw_only=True)
class Learning:
    """What one worker learns with; made on each worker, alike."""

    model: nn.Module
    """On the device that was given. One that is too large for it: after ``torch.distributed.fsdp.fully_shard``; each
    worker then keeps and saves its shards only."""
    optimizer: Optimizer
    task: Callable[[nn.Module], Task]
    """Given the model through which the loss must go (with several workers it is wrapped), what is learnt."""
    scheduler: LRScheduler | None = None
    validation: Validates | None = None
    """Samples to be judged on, as often as ``validate_every_steps`` and ``validate_at_epoch_end`` say."""
    max_grad_norm: float | None = 1.0


@dataclass(frozen=True, kw_only=True)
class OwnJob:
    """One run of a task of your own."""

    config: JobConfig
    """Where, on how many workers, how often what. What it says of a corpus, a preset and a release means nothing here.
    """
    learn: Callable[[torch.device], Learning]
    """Called once on each worker, after the generators were seeded."""
    num_samples: int
    """Samples are asked for by their index below this."""
    global_batch: int
    """Samples of one update, on all workers together."""
    total_batches: int
    """Global batches of the whole run."""
    identity: dict[str, Any] = field(default_factory=dict)
    """What else must be the same for a run to go on: digests of data, a version of the task. Plain JSON."""
    storage_path: str | None = None
    """Where copies of checkpoints go on ``storage_filesystem``: ``bucket/prefix``. By an address: ``config.remote``."""
    storage_filesystem: Any = None
    """A ``pyarrow.fs.FileSystem`` that can be pickled, as Ray's ``RunConfig(storage_filesystem=...)`` takes one, for a
    store whose options or credentials no address can say. Ray's own is not set: Ray writes nothing of this run there,
    its checkpoints are written to the run's folder first and copied by a process behind the training."""

    def __post_init__(self) -> None:
        """Refuse counts that are none."""
        for name in ("num_samples", "global_batch", "total_batches"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more")
        if self.storage_filesystem is None and self.storage_path is not None:
            raise ConfigError("storage_path needs a storage_filesystem; by an address, say it as remote of the config")
        if self.storage_filesystem is not None:
            self._refuse_storage()

    def _refuse_storage(self) -> None:
        from failsoft.artifacts.remote_place import place_on  # noqa: PLC0415 -- loads pyarrow, only for who uses it

        place_on(self.storage_filesystem, self.storage_path or "")
        if self.config.remote is not None:
            raise ConfigError("both remote and storage_filesystem are given; checkpoints are copied to one place")

    def whole_identity(self) -> dict[str, Any]:
        """What makes this run this run."""
        sums = {name: getattr(self, name) for name in ("num_samples", "global_batch", "total_batches")}
        return {"task": self.learn.__qualname__, "seed": self.config.seed} | sums | self.identity


def train_own(
    job: OwnJob, *, clock: Clock | None = None, say: Callable[[str], object] = lambda _said: None
) -> Artifact:
    """Train to the end on the Ray of $RAY_ADDRESS, else on a private one. The same call again goes on.

    Args:
        job: the run.
        clock: waits; None: the machine's.
        say: told in a sentence what is waited for.

    Returns:
        The final checkpoint: ``train_jobs.own_build.load_model(model, checkpoint)`` puts it into a model.

    Raises:
        ConfigError: another process is training this run, or the folder is another job's; nothing was touched.
        FailsoftError: whatever stopped the run; the message says what to do. Its ``exit_status`` is for ``sys.exit``.
    """
    home, clock = Home.find(job.config.home), clock or SystemClock()
    job = replace(job, config=replace(job.config, home=home.root))
    folder, notice, progress = home.run(job.config.run), Notice(), ProgressFile(home.run(job.config.run), clock)
    if prepared_corpus(home, job.config.run, clock).root.is_dir():
        raise ConfigError(f"run {job.config.run!r} was begun by failsoft train; use another run name")
    with ExitStack() as stack:
        stack.enter_context(sole_driver(folder))
        stack.enter_context(sole_trainer(folder, clock, patience_s=0.0))
        stack.enter_context(hearing(notice))
        stack.enter_context(passing_on(notice, folder))
        stack.enter_context(connected(job.config))
        stack.enter_context(exporting(job.config))
        progress.turn(Phase.PREPARING)
        try:
            final = _carried_through(job, home, clock, say, notice)
        except FailsoftError:
            with suppress(OSError):  # the error says more than a file on storage that is away
                progress.turn(Phase.STOPPED)
            raise
    progress.turn(Phase.FINISHED)
    return final


def _carried_through(job: OwnJob, home: Home, clock: Clock, say: Callable[[str], object], notice: Notice) -> Artifact:
    from train_jobs.own_build import OwnDriver, final_of  # noqa: PLC0415 -- loads Ray, whose environment stands by now

    config, folder = job.config, home.run(job.config.run)
    plan, rng = plan_of_crew(config, home, clock), random.Random(config.seed)
    told: Callable[[], bool] = lambda: notice.heard is not None or read_notice(folder) is not None  # noqa: E731 -- as said
    storage = storage_of(config, plan, clock=clock, rng=rng, say=say, told=told)
    crew = Crew(OwnDriver(job, clock), plan, clock=clock, told=told, say=say)
    total = job.total_batches + len(read_requeue(folder))
    attempts = Attempts(home=home, run=config.run, clock=clock, total_batches=lambda: total, storage=storage)
    attempts.until_done(crew.run_once, policy=RestartPolicy(backoff=config.backoff), rng=rng)
    final = storage.reached(lambda: final_of(home.checkpoints(config.run, clock)))
    if final is None:
        raise NoProgressError(f"the last checkpoint of run {config.run!r} is not whole any more; start it again")
    return final
