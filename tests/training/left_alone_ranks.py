"""One of two gloo ranks of which one alone is in trouble: ``python -m … RANK FOLDER``; a JSON line for each scene.

After each scene both ranks meet once more. A rank that had left a collective alone would be missed there: the group's
patience is far below that of a test.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from failsoft.errors import ConfigError, FailsoftError
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import gather_ahead, ranks_here
from failsoft.training.state import TrainingState
from failsoft.training.together import done_by_all, judged_together
from tests.training.sharded_toys import sharded_loop
from tests.training.toys import toy_loop

PATIENCE = timedelta(seconds=60)


class Unspeakable(torch.optim.lr_scheduler.LinearLR):
    """Its state is nothing that JSON can say, as of a scheduler of one's own that keeps a tensor."""

    def state_dict(self) -> dict[str, object]:
        return {"kept": {1, 2}}


def whole_loop(folder: Path) -> TrainLoop:
    plan = LoopPlan(total_batches=24, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8)
    return toy_loop(folder, plan=plan, ranks=ranks_here())


def ill_on_one(loop: TrainLoop) -> TrainLoop:
    if dist.get_rank() == 1:
        loop.state.scheduler = Unspeakable(loop.state.optimizer)
    return loop


def submitted(loop: TrainLoop, *, judged: bool) -> None:
    ill_on_one(loop)
    try:
        loop.checkpoints.tend(loop.state)
        loop.checkpoints.submit(loop.state, {}, judged=judged)
    finally:
        loop.checkpoints.close()


def stepped(state: TrainingState) -> None:
    """There are moments from here on."""
    for parameter in state.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    state.optimizer.step()
    state.optimizer.zero_grad()


def looked_at(loop: TrainLoop) -> str | None:
    """As at the end of a run where memory is short."""
    return judged_together(loop.checkpoints.ranks, ill_on_one(loop).state)[1]


def nan_on_one(loop: TrainLoop) -> str | None:
    if dist.get_rank() == 1:
        next(loop.state.model.parameters()).data.fill_(torch.nan)
    return judged_together(loop.checkpoints.ranks, loop.state)[1]


def restored(folder: Path) -> None:
    loop = whole_loop(folder)
    loop.state.position = 8
    loop.checkpoints.publish(loop.state, {})
    other = whole_loop(folder)
    if dist.get_rank() == 1:
        other.state.model.register_buffer("mine", torch.zeros(1))
    other.checkpoints.restore(other.state, seed=3)


def worked(kind: Callable[[str], Exception]) -> str:
    def work() -> str:
        if dist.get_rank() == 1:
            raise kind("its mount is gone")
        return "done"

    return done_by_all(ranks_here(), work)


def told(text: str) -> list[int]:
    """A gathering that is begun ahead, and something done meanwhile."""
    with gather_ahead(ranks_here(), text * (1 + dist.get_rank())) as hear:
        torch.zeros(1000).add_(1.0)
        return [len(one) for one in hear()]


def answer(scene: Callable[[], object]) -> object:
    try:
        return scene()
    except (FailsoftError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def moments(loop: TrainLoop) -> Checkpoints:
    stepped(loop.state)
    return loop.checkpoints


def scenes(folder: Path) -> dict[str, Callable[[], object]]:
    def prepared() -> None:
        loop = sharded_loop(folder / "prepared")
        moments(loop)
        submitted(loop, judged=True)

    return {
        "whole, judged": lambda: submitted(whole_loop(folder / "a"), judged=True),
        "whole": lambda: submitted(whole_loop(folder / "b"), judged=False),
        "shards, judged": lambda: submitted(sharded_loop(folder / "c"), judged=True),
        "shards": lambda: submitted(sharded_loop(folder / "d"), judged=False),
        "prepared": prepared,
        "looked at": lambda: looked_at(whole_loop(folder / "e")),
        "nan": lambda: nan_on_one(whole_loop(folder / "f")),
        "restored": lambda: restored(folder / "g"),
        "of the tree": lambda: worked(ConfigError),
        "of the disk": lambda: worked(OSError),
        "without a word": lambda: worked(lambda _: TimeoutError()),
        "told": lambda: told("a" * 1000),
        "told nothing": lambda: told(""),
        "told at length": lambda: told("ä" * 20_000),
    }


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=PATIENCE)
    try:
        for name, scene in scenes(folder).items():
            said = answer(scene)
            met = torch.ones(1)
            dist.all_reduce(met)
            print(json.dumps({"name": name, "said": said, "met": int(met)}), flush=True)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
