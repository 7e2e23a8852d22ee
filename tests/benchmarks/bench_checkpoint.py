"""What a checkpoint costs the training: the stall of its thread, and the steps while the writer works.

Against ``torch.save`` (with fsync, and what most loops do) and DCP's ``async_save``, in turns, with one torch thread
and with as many as there are cores. Everything is at rest before each timing: a contender's own aftermath is awaited
outside of it. The floor is one copy of the same bytes between two buffers whose pages are in use.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.optim import AdamW

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.checkpoints.retention import Last
from failsoft.training.checkpoints.writer import CheckpointWriter, writer_behind
from failsoft.training.ranks import SoloRank
from failsoft.training.state import TrainingState, flatten
from tests.benchmarks import sharded_stalls
from tests.benchmarks.guarded_loops import Size, network
from tests.benchmarks.measuring import CONTROL, Timings
from tests.benchmarks.outcome import Outcome
from tests.rank_pair import outputs_of_two

MEMCPY, OURS, SAVE, DCP = "memory copy", "failsoft", "torch.save + fsync", "DCP async_save"
QUIET, WHILE_OURS, WHILE_DCP, WHILE_THREAD = (
    "steps, quiet",
    "steps while failsoft writes",
    "steps while DCP writes",
    "steps while a thread writes",
)
BATCH, STEPS = 32, 8
LONGEST_S = 3.0
"""Of one timing of steps: those beside a naive thread take up to 36 times as long, and a few of them show it."""
SMALL = Size(name="5m", width=512, layers=19, rounds=3)
LARGE = Size(name="30m", width=1024, layers=28, rounds=9)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One contender: what is timed, and what is awaited afterwards."""

    name: str
    run: Callable[[], object]
    rest: Callable[[], object] = lambda: None


def measure(*, quick: bool) -> Outcome:
    """Both thread counts; the stated ratios take the worse of them."""
    size, rounds = (SMALL, 3) if quick else (LARGE, 5)
    cores = os.cpu_count() or 1
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # DCP's writing thread says so each time
    outcome = Outcome(name="checkpoint", processes=2, threads=cores)
    counts = sorted({1, cores})
    for threads in counts:
        torch.set_num_threads(threads)
        with _bench(size) as bench:
            _stalls(outcome, bench, rounds, threads)
            _steps(outcome, bench, rounds, threads)
    _sharded(outcome, size, rounds)
    for name in ("stall_over_memcpy", "stall_over_dcp_async", "step_while_writing_over_quiet"):
        each = [outcome.ratios[f"{name}_{threads}_threads"] for threads in counts]
        outcome.ratios[name] = max(each, key=lambda ratio: ratio.value)
    outcome.notes.append(
        "the stall is the whole call: state taken apart, small part as JSON, copy, hand-over; the state was judged by "
        "the snapshot of the same moment, as in the loop. The second process is the writer, at the lowest priority"
    )
    outcome.notes.append(
        "steps while writing are timed from after the stall until the write ends, at most 16 steps or 3 s"
    )
    return outcome


class Bench:
    """A model that trains, and every way to save it."""

    def __init__(self, size: Size, folder: Path) -> None:
        self.folder = folder
        self.model = network(size)
        self.optimizer = AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.batch = torch.randn(BATCH, size.width, generator=torch.Generator().manual_seed(3))
        self.step()
        self.state = TrainingState(model=self.model, optimizer=self.optimizer)
        clock = SystemClock()
        store = ArtifactStore(folder / "checkpoints", clock, kind="checkpoint")
        self.writer: CheckpointWriter = writer_behind(store, clock, rules=(Last(count=1),))
        ledger = Ledger(folder / "ledger.jsonl", clock, side=Side.TRAINING, subject="bench")
        self.checkpoints = Checkpoints(store=store, identity={}, ranks=SoloRank(), ledger=ledger, writer=self.writer)
        self.checkpoints.tend(self.state)
        self.saved: Any = None
        self.thread = threading.Thread()
        tensors = flatten(self.state).tensors.values()
        self.bytes = sum(tensor.nbytes for tensor in tensors)
        self.source, self.target = (np.full(self.bytes, fill, np.uint8) for fill in (1, 2))

    def step(self) -> None:
        """One plain training step."""
        self.optimizer.zero_grad()
        torch.as_tensor(self.model(self.batch)).square().mean().backward()
        self.optimizer.step()

    def memcpy(self) -> None:
        """The floor, with as many threads as torch has."""
        torch.from_numpy(self.target).copy_(torch.from_numpy(self.source))

    def ours(self) -> None:
        """What the loop calls when a checkpoint is due."""
        self.state.position += 1
        assert self.checkpoints.submit(self.state, {}, judged=True)

    def ours_at_rest(self) -> None:
        """Until it is published."""
        before = self.checkpoints.position
        self.checkpoints.settle()
        assert self.checkpoints.position == self.state.position != before

    def state_dict(self) -> dict[str, Any]:
        """What the others save."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def torch_save(self) -> None:
        """In place and durable."""
        with (self.folder / "torch.pt").open("wb") as out:
            torch.save(self.state_dict(), out)
            out.flush()
            os.fsync(out.fileno())

    def dcp(self) -> None:
        """Its default: staged here, written by a thread."""
        folder = self.folder / "dcp"
        shutil.rmtree(folder, ignore_errors=True)
        self.saved = async_save(self.state_dict(), checkpoint_id=folder, no_dist=True)

    def dcp_at_rest(self) -> None:
        """Until it is on the disk."""
        self.saved.result()

    def quiet(self) -> Callable[[], bool]:
        """Nothing is written; true for as many steps as one write takes elsewhere."""
        left = iter(range(STEPS - 1))
        return lambda: next(left, None) is not None

    def begin_ours(self) -> Callable[[], bool]:
        """Hand over; true while the writer is at it."""
        self.ours()

        def working() -> bool:
            self.checkpoints.look()
            return self.writer.busy

        return working

    def begin_dcp(self) -> Callable[[], bool]:
        """Hand over; true while its thread is at it."""
        self.dcp()
        return lambda: not self.saved.done()

    def begin_thread(self) -> Callable[[], bool]:
        """What one writes first: a copy, and a thread that saves it."""
        copy = {name: tensor.clone() for name, tensor in flatten(self.state).tensors.items()}
        self.thread = threading.Thread(target=torch.save, args=(copy, self.folder / "thread.pt"))
        self.thread.start()
        return self.thread.is_alive

    def thread_at_rest(self) -> None:
        """Until it is in the page cache."""
        self.thread.join()


@contextmanager
def _bench(size: Size) -> Iterator[Bench]:
    folder = Path(tempfile.mkdtemp(prefix="failsoft-bench-"))
    bench = Bench(size, folder)
    try:
        yield bench
    finally:
        bench.checkpoints.close()
        shutil.rmtree(folder)


def _stalls(outcome: Outcome, bench: Bench, rounds: int, threads: int) -> None:
    turns = [
        Turn(name=MEMCPY, run=bench.memcpy),
        Turn(name=MEMCPY + CONTROL, run=bench.memcpy),
        Turn(name=OURS, run=bench.ours, rest=bench.ours_at_rest),
        Turn(name=SAVE, run=bench.torch_save),
        Turn(name=DCP, run=bench.dcp, rest=bench.dcp_at_rest),
    ]
    timings = _in_turns(turns, rounds, _seconds)
    outcome.add(f"stall, {bench.bytes / 1e6:.0f} MB, {threads} threads", timings)
    outcome.ratios[f"stall_over_memcpy_{threads}_threads"] = timings.ratio(OURS, MEMCPY)
    outcome.ratios[f"stall_over_dcp_async_{threads}_threads"] = timings.ratio(OURS, DCP)
    outcome.ratios[f"stall_over_torch_save_{threads}_threads"] = timings.ratio(OURS, SAVE)


def _steps(outcome: Outcome, bench: Bench, rounds: int, threads: int) -> None:
    counts: dict[str, list[int]] = {}

    def timed(turn: Turn) -> float:
        working = turn.run()
        assert callable(working)
        count, started_s = 0, time.perf_counter()
        took_s = 0.0
        while count == 0 or (working() and count < 2 * STEPS and took_s < LONGEST_S):
            bench.step()
            count += 1
            took_s = time.perf_counter() - started_s
        counts.setdefault(turn.name, []).append(count)
        return took_s / count

    turns = [
        Turn(name=QUIET, run=bench.quiet),
        Turn(name=QUIET + CONTROL, run=bench.quiet),
        Turn(name=WHILE_OURS, run=bench.begin_ours, rest=bench.ours_at_rest),
        Turn(name=WHILE_DCP, run=bench.begin_dcp, rest=bench.dcp_at_rest),
        Turn(name=WHILE_THREAD, run=bench.begin_thread, rest=bench.thread_at_rest),
    ]
    timings = _in_turns(turns, rounds, timed)
    outcome.add(f"one step, {threads} threads", timings)
    key = f"while_writing_over_quiet_{threads}_threads"
    outcome.ratios[f"step_{key}"] = timings.ratio(WHILE_OURS, QUIET)
    outcome.ratios[f"dcp_step_{key}"] = timings.ratio(WHILE_DCP, QUIET)
    outcome.ratios[f"thread_step_{key}"] = timings.ratio(WHILE_THREAD, QUIET)
    seen = ", ".join(f"{name}: {min(each)}–{max(each)}" for name, each in counts.items() if "writes" in name)
    outcome.notes.append(f"steps within one write, {threads} threads: {seen}")


def _sharded(outcome: Outcome, size: Size, rounds: int) -> None:
    """The same model in shards on two ranks, one thread each; of each round the rank that was held up longer counts."""
    with tempfile.TemporaryDirectory(prefix="failsoft-bench-") as folder:
        words = [folder, str(size.width), str(size.layers), str(rounds)]
        told = [json.loads(text) for text in outputs_of_two("tests.benchmarks.sharded_stalls", *words)]
    seconds = {
        name: [max(each) for each in zip(*(one["seconds"][name] for one in told), strict=True)]
        for name in told[0]["seconds"]
    }
    timings = Timings(seconds=seconds)
    outcome.add(f"stall, sharded over 2 ranks, {told[0]['bytes'] / 1e6:.0f} MB each, 1 thread", timings)
    outcome.ratios["sharded_stall_over_memcpy_2_ranks"] = timings.ratio(sharded_stalls.OURS, sharded_stalls.MEMCPY)


def _seconds(turn: Turn) -> float:
    started_s = time.perf_counter()
    turn.run()
    return time.perf_counter() - started_s


def _in_turns(turns: Sequence[Turn], rounds: int, timed: Callable[[Turn], float]) -> Timings:
    """Each contender once a round, in a new order each time, after a round that is not counted."""
    seconds: dict[str, list[float]] = {turn.name: [] for turn in turns}
    order = random.Random(7)
    for number in range(rounds + 1):
        for turn in order.sample(list(turns), len(turns)):
            took_s = timed(turn)
            turn.rest()
            if number:
                seconds[turn.name].append(took_s)
    return Timings(seconds=seconds)
