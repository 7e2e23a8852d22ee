"""One of two gloo ranks of the soak: ``python -m … RANK FOLDER PLANS``; prints a JSON line at the end of each run."""

from __future__ import annotations

import json
import random
import shutil
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.health.monitor import HealthPolicy
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Breaker, BreakerPolicy
from failsoft.training.checkpoints.checkpoint import Checkpoints, deliver_here
from failsoft.training.chronicle import Desk
from failsoft.training.degradation import Degradations
from failsoft.training.guard import StepGuard
from failsoft.training.loading.cache import CachePolicy, LocalCache
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.feed import Feed
from failsoft.training.loading.lane import LoaderPolicy
from failsoft.training.loading.layout import ShardLayout
from failsoft.training.loading.loader import GuardedLoader
from failsoft.training.loading.news import SourceNews
from failsoft.training.loading.order import RankOrder
from failsoft.training.loading.quarantine import QuarantinePolicy
from failsoft.training.loading.remote import FsspecReader, RemotePolicy, RemoteSource
from failsoft.training.loading.sample_letters import SampleLetters
from failsoft.training.loading.tiered_dataset import TieredDataset
from failsoft.training.loading.tiers import TieredSource
from failsoft.training.loading.weighing import weighted_mean
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.memory.rungs import MemoryPolicy
from failsoft.training.pace.policy import PacePolicy, RemedyPolicy
from failsoft.training.ranks import Ranks, ranks_here
from failsoft.training.state import TrainingState
from tests.drills.soak_data import GLOBAL_BATCH, Nonsense, Texts, decoded
from tests.drills.soak_plain import judged, model_of
from tests.drills.soak_plan import SoakPlan

BRIEF = BackoffPolicy(first_s=1.0, factor=3.0, cap_s=60.0, jitter_fraction=0.0)


@dataclass(frozen=True)
class UnsteadyReader:
    """A file system that does not answer while a file says so."""

    inner: FsspecReader
    down: Path

    def read(self, path: str, *, first: int, length: int) -> bytes:
        """As any reader."""
        if self.down.exists():
            raise ConnectionError("nobody answers")
        return self.inner.read(path, first=first, length=length)


@dataclass(kw_only=True)
class SoakTask:
    """Learns the embedded corpus through the guarded loader."""

    model: torch.nn.Module
    feed: Feed
    plan: SoakPlan
    folder: Path
    leads: bool
    real: int = 0
    """Samples of this rank that counted."""
    places: int = 0
    """Samples that this rank was asked to load; each is a place in a batch, also where it could not be had."""

    def __post_init__(self) -> None:
        self.weight = self.feed.weight
        self.take_skipped = self.feed.take_skipped
        self.take_synthetic = self.feed.take_synthetic
        self.ahead = self.feed.ahead
        self.follow = self.feed.follow

    def load_samples(self, position: int, indices: NDArray[np.int64], *, counted: bool = True) -> int:
        """This rank's share; the remote goes down and comes back on the way."""
        if self.leads:
            self._weather(position)
        real = self.feed.load_samples(position, indices, counted=counted)
        self.real += real
        self.places += len(indices) if counted else 0
        return real

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        """Mean over the real ones of these samples."""
        rows, batch = self.feed.rows(indices), self.feed.batch
        losses_B = self.model({name: values[rows] for name, values in batch.data.items()})
        return weighted_mean(losses_B, batch.weights_B[rows])

    def _weather(self, position: int) -> None:
        down = down_file(self.folder)
        for outage in self.plan.outages:
            if position == outage.start:
                down.touch()
                for part in sorted((self.folder / "cache").iterdir())[::2]:
                    shutil.rmtree(part, ignore_errors=True)
            elif position == outage.stop:
                down.unlink()


def down_file(folder: Path) -> Path:
    """While it is there nobody answers."""
    return folder / "down"


@dataclass(kw_only=True)
class Soak:
    """One rank of one run."""

    plan: SoakPlan
    folder: Path
    layout: ShardLayout
    texts: Texts
    ranks: Ranks
    clock: SystemClock = field(default_factory=SystemClock)

    @cached_property
    def ledger(self) -> Ledger:
        """The run's."""
        return Ledger(self.folder / "ledger.jsonl", self.clock, side=Side.TRAINING, subject=self.plan.name)

    @cached_property
    def batches(self) -> GlobalBatches:
        """The order of samples."""
        return GlobalBatches(num_samples=len(self.texts.train), global_batch=GLOBAL_BATCH, seed=self.plan.seed)

    def feed(self) -> Feed:
        """Cache, remote, nonsense; checked; by workers."""
        reader = UnsteadyReader(FsspecReader(url=f"file://{self.layout.folder}"), down_file(self.folder))
        brief = BackoffPolicy(first_s=0.002, factor=2.0, cap_s=0.01)
        remote = RemoteSource(reader, self.layout, policy=RemotePolicy(tries=2, wait=brief))
        rest = QuarantinePolicy(rest=BackoffPolicy(first_s=0.02, factor=2.0, cap_s=0.05))
        source = TieredSource(
            tiers=(LocalCache(self.folder / "cache", CachePolicy(max_bytes=10_000_000)), remote),
            synthesis=Nonsense(),
            tier_policy=rest,
            shard_policy=rest,
            seed=self.ranks.rank,
        )
        order = RankOrder(batches=self.batches, rank=self.ranks.rank, world=self.ranks.world, total=self.plan.total)
        dataset = TieredDataset(source, decoded, size=len(self.texts.train))
        checked = Checked(dataset, checks=self.texts.checks(), reserve=order.reserve)
        loader = GuardedLoader(checked, order, policy=LoaderPolicy(workers=self.plan.workers), tell=self.ledger.record)
        return Feed(
            loader=loader,
            letters=SampleLetters(self.folder / "dead_letters", rank=self.ranks.rank, clock=self.clock),
            news=SourceNews(Degradations(self.ledger.record, rank=self.ranks.rank)),
        )

    def loop(self, feed: Feed) -> TrainLoop:
        """All nets on."""
        model, optimizer, scheduler = model_of(self.texts, self.plan.seed, self.plan.total)
        wrapped = DistributedDataParallel(model)
        breaker = Breaker(BreakerPolicy(skip_rate=one_in_a_hundred()))
        return TrainLoop(
            state=TrainingState(model=model, optimizer=optimizer, scheduler=scheduler, breaker=breaker),
            task=SoakTask(model=wrapped, feed=feed, plan=self.plan, folder=self.folder, leads=self.ranks.rank == 0),
            batches=self.batches,
            plan=LoopPlan(
                total_batches=self.plan.total,
                seed=self.plan.seed,
                memory=MemoryPolicy(climb_after_steps=self.plan.climb_after),
                pace=PacePolicy(window=self.plan.window, min_samples=self.plan.window // 2, min_excess_s=0.004),
                pace_remedy=RemedyPolicy(patience=BRIEF, max_updates=1) if self.plan.remedy else None,
            ),
            guard=StepGuard(model=wrapped, optimizer=optimizer, scheduler=scheduler, ranks=self.ranks),
            breaker=breaker,
            checkpoints=Checkpoints(
                store=ArtifactStore(self.folder / "checkpoints", self.clock, kind="checkpoint"),
                identity={"seed": self.plan.seed, "total_batches": self.plan.total},
                ranks=self.ranks,
                ledger=self.ledger,
                deliver=deliver_here,
            ),
            desk=Desk(
                folder=self.folder,
                ledger=self.ledger,
                clock=self.clock,
                faults=self.plan.faults,
                record_consumed=True,
            ),
        )

    def ended(self) -> dict[str, Any]:
        """Train, judge, and say how it ended."""
        feed = self.feed()
        loop = self.loop(feed)
        began_s = self.clock.monotonic_s()
        try:
            loop.run()
        finally:
            feed.close()
        took_s = self.clock.monotonic_s() - began_s
        assert isinstance(loop.task, SoakTask)
        skips = loop.breaker.skip_rate
        return {
            "run": self.plan.name,
            "step": loop.state.step,
            "position": loop.state.position,
            "real": loop.task.real,
            "places": loop.task.places,
            "skipped": skips.bad,
            "met": skips.total,
            "warning": skips.warning,
            "synthetic": loop._samples.share.bad,
            "refused": loop.breaker.refused,
            "loss": judged(loop.state.model, self.texts),
            "weights": float(sum(values.double().sum() for values in loop.state.model.state_dict().values())),
            "took_s": took_s,
        }


def one_in_a_hundred() -> HealthPolicy:
    """A run that is known to lose 0.5 % says so: by default 0.1 % of samples stops it."""
    return HealthPolicy(
        window_size=10_000_000,
        min_samples=5_000,
        max_bad_fraction=0.01,
        ruled_out_bad_fraction=0.01,
        warn_bad_fraction=0.0001,
    )


def main(rank: int, folder: Path, plans: list[SoakPlan]) -> None:
    """All runs, one after the other; the data lies beside them."""
    torch.set_num_threads(1)
    random.seed(rank)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=120))
    texts = Texts.embedded()
    for plan in plans:
        data = folder / ("data-spoilt" if plan.troubled else "data-clean")
        soak = Soak(plan=plan, folder=folder / plan.name, layout=ShardLayout(data), texts=texts, ranks=ranks_here())
        print(json.dumps(soak.ended()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), [SoakPlan(**body) for body in json.loads(sys.argv[3])])
