"""One of two gloo ranks that are told to leave by real signals: ``python -m … RANK FOLDER``; prints JSON lines.

The last scene's error is what the process ends by, as a worker's does.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.artifacts.manifest import digest_bytes
from failsoft.errors import PreemptedError
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.retention import Last
from failsoft.training.checkpoints.writer import CheckpointWriter
from failsoft.training.checkpoints.writer_link import Message, ProcessLink
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import Ranks, ranks_here
from failsoft.training.state import model_tensors
from failsoft.training.survival.notice import listening
from failsoft.training.survival.saving_asked import Wish, Wishes
from failsoft.training.survival.station import Orders, Station, watched
from failsoft.training.validation import ValidationPlan, Validator
from tests.training.toys import ToyTask, toy_data, toy_loop, written_behind

PLAN = LoopPlan(total_batches=24, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8)
LOOKS_EVERY, SAMPLES = 3, 20
BUSY_S = 1.5
WHO: Mapping[str, tuple[int, ...]] = {"both": (0, 1), "rank 0": (0,), "rank 1": (1,)}


_TOLD_S: list[float] = []
"""Wall times at which this rank was told."""


def told() -> None:
    """By the scheduler, now: Python has handled the signal when this returns."""
    _TOLD_S.append(SystemClock().wall_s())
    signal.raise_signal(signal.SIGTERM)


@dataclass(kw_only=True)
class Judged:
    """Samples to be judged on; told to leave in its first batch of them, if at all."""

    hears: bool = False
    validation_samples: int = SAMPLES

    def validate(self, model: nn.Module, indices: NDArray[np.int64]) -> Mapping[str, float]:
        if self.hears:
            told()
        inputs, targets = toy_data()
        rows = torch.from_numpy(indices)
        return {"val_loss": nn.functional.mse_loss(model(inputs[rows]), targets[rows]).item()}


class SlowLink(ProcessLink):
    """A writer whose disk takes its time: what it says of a checkpoint comes so much later."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = SystemClock()
        self._held: list[tuple[float, Message]] = []

    def receive(self, wait_s: float) -> Message | None:
        message = super().receive(wait_s)
        if message is not None and message["say"] != "written":
            return message
        if message is not None:
            self._held.append((self._clock.monotonic_s() + BUSY_S, message))
        if self._held and self._clock.monotonic_s() >= self._held[0][0]:
            return self._held.pop(0)[1]
        return None


@dataclass(kw_only=True)
class Busy:
    """The task; told to leave while an earlier checkpoint is being written."""

    inner: ToyTask
    loop: TrainLoop
    hears: bool
    saw: list[bool] = field(default_factory=list)

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        writer = self.loop.checkpoints.writer
        if self.loop.state.position == 9:
            self.saw.append(writer is not None and writer.busy)
            if self.hears:
                told()
        return self.inner.loss(indices)


def look_at(loop: TrainLoop, task: Judged) -> TrainLoop:
    loop.validation = Validator(
        task,
        loop.state,
        loop.guard.ranks,
        loop.desk,
        ValidationPlan(every_steps=LOOKS_EVERY, batch=4),
        batches_per_epoch=loop.batches.batches_per_epoch,
    )
    return loop


def judged(folder: Path, *, hears: bool = False) -> Callable[[Ranks], TrainLoop]:
    def build(ranks: Ranks) -> TrainLoop:
        loop = toy_loop(folder, plan=PLAN, ranks=ranks, clock=SystemClock())
        return look_at(loop, Judged(hears=hears))

    return build


def written_slowly(folder: Path, saw: list[bool], *, hears: bool) -> Callable[[Ranks], TrainLoop]:
    def build(ranks: Ranks) -> TrainLoop:
        loop = toy_loop(folder, plan=PLAN, ranks=ranks, clock=SystemClock())
        store = loop.checkpoints.store
        written_behind(loop, CheckpointWriter(store, clock=SystemClock(), start=SlowLink))
        assert isinstance(loop.task, ToyTask)
        loop.task = Busy(inner=loop.task, loop=loop, hears=hears, saw=saw)
        return loop

    return build


@dataclass(kw_only=True)
class Asked:
    """The task; this rank alone is asked to save before some batches, the second time while a writer is busy."""

    inner: ToyTask
    loop: TrainLoop
    wishes: Wishes
    at: Mapping[int, str]

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        why = self.at.get(self.loop.state.position)
        if why is not None:
            self.wishes.give(Wish(id=why, why=why))
        return self.inner.loss(indices)


def asked(folder: Path, station: Station, at: Mapping[int, str]) -> Callable[[Ranks], TrainLoop]:
    def build(ranks: Ranks) -> TrainLoop:
        loop = toy_loop(folder, plan=PLAN, ranks=ranks, clock=SystemClock())
        store = loop.checkpoints.store
        keeps = (Last(count=9),)
        written_behind(loop, CheckpointWriter(store, rules=keeps, clock=SystemClock(), start=SlowLink))
        assert isinstance(loop.task, ToyTask)
        loop.task = Asked(inner=loop.task, loop=loop, wishes=station.notice.wishes, at=at)
        return loop

    return build


def worked(folder: Path, build: Callable[[Ranks], TrainLoop], *, station: Station | None = None) -> dict[str, object]:
    """As a worker does: where it ended, and by what."""
    station, ranks, loops = station or Station(), ranks_here(), list[TrainLoop]()
    _TOLD_S.clear()
    probe = toy_loop(folder, clock=SystemClock())
    orders = Orders(folder=folder, ledger=probe.desk.ledger, clock=SystemClock())

    def built(noticed: Ranks) -> TrainLoop:
        loops.append(build(noticed))
        return loops[0]

    exit_status = 0
    with listening(station.notice), watched(station, orders, ranks) as connected:
        try:
            connected(built).run()
        except PreemptedError as error:
            exit_status = error.exit_status
    (loop,) = loops
    weights = b"".join(tensor.numpy().tobytes() for tensor in model_tensors(loop.state.model).values())
    where = {"position": loop.state.position, "exit": exit_status}
    return where | {"weights": digest_bytes(weights), "told_s": list(_TOLD_S)}


def main(rank: int, folder: Path) -> int:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=120))

    def say(scene: str, **seen: object) -> None:
        print(json.dumps({"scene": scene} | seen), flush=True)
        ranks_here().gather("next")

    say("undisturbed", **worked(folder / "undisturbed", judged(folder / "undisturbed")))
    for who, ones in WHO.items():
        place = folder / f"look {who}"
        say(place.name, **worked(place, judged(place, hears=rank in ones)))
        if rank == 0:
            shutil.copytree(place, folder / f"alone {who}")
        say(f"again {who}", **worked(place, judged(place)))
    station, by_rank = Station(), ({2: "first", 17: "both"}, {3: "second", 17: "both"})
    say("asked", **worked(folder / "asked", asked(folder / "asked", station, by_rank[rank]), station=station))
    seen: dict[str, object] = {}
    for who, ones in WHO.items():
        place, saw = folder / f"writer {who}", list[bool]()
        seen = worked(place, written_slowly(place, saw, hears=rank in ones))
        say(place.name, busy=saw, **seen)
    dist.destroy_process_group()
    return int(str(seen["exit"]))


if __name__ == "__main__":
    status = main(int(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(status)  # as Ray ends its workers
