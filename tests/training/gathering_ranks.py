"""One of two gloo ranks of which the first leaves gatherings under way: ``python -m … RANK FOLDER``; prints JSON lines.

In each scene rank 0 leaves its block before rank 1 has begun. After the last one it never lets another thread have
Python's lock until Python ends: a thread of gloo's that needs the lock after that takes the process down with it.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from failsoft.errors import PreemptedError
from failsoft.health.clock import SystemClock
from failsoft.training.ranks import Ranks, gather_ahead, ranks_here
from failsoft.training.together import begun

LONG = "ä" * 40_000
"""More than the room of a gathering that is begun ahead, so that a second one follows it."""
_PENDING_S = 0.3
_LET_GO_S = 0.1
"""Less than a gathering left under way stays so; gloo takes the lock to let go of one that has ended."""


class LastToGo:
    """Part of a ring of references, so that it goes when Python ends, and not before: then it lets others run."""

    def __init__(self) -> None:
        self.ring = self

    def __del__(self, wait: Callable[..., object] = select.select) -> None:
        wait([], [], [], 0.3)


def greedy_end() -> None:
    """Hold Python's lock for longer than the other rank takes, and up to the end of Python."""
    clock = SystemClock()
    clock.sleep_s(_LET_GO_S)
    sys.setswitchinterval(1e6)
    until_s = clock.monotonic_s() + 4 * _PENDING_S
    while clock.monotonic_s() < until_s:
        continue
    globals()["last"] = LastToGo()


Leaves = Callable[[Ranks, Path, str], None]


def left_by(error: BaseException | None) -> Leaves:
    def leaves(ranks: Ranks, left: Path, text: str) -> None:
        with gather_ahead(ranks, text):
            left.touch()
            if error is not None:
                raise error

    return leaves


def word_left(ranks: Ranks, left: Path, _text: str) -> None:
    """By way of those who tell each other words of plain data."""
    with begun(ranks, {"a": 1}):
        left.touch()
        raise ValueError("the step")


SCENES: dict[str, Leaves] = {
    "nobody hears": left_by(None),
    "told to leave": left_by(PreemptedError("SIGTERM")),
    "interrupted": left_by(KeyboardInterrupt()),
    "at length": left_by(ValueError("the step")),
    "a word": word_left,
    "the step raises": left_by(ValueError("the step")),
}


def answer(scene: Leaves, ranks: Ranks, left: Path, text: str) -> str:
    try:
        scene(ranks, left, text)
    except BaseException as error:  # noqa: BLE001 -- whatever it is, it is what the test asks for
        return " ".join([type(error).__name__, str(error), *getattr(error, "__notes__", [])]).strip()
    return "left"


def joined(ranks: Ranks, left: Path, text: str) -> list[int]:
    """The other rank's part, some time after rank 0 has raised."""
    clock = SystemClock()
    while not left.exists():
        clock.sleep_s(0.01)
    clock.sleep_s(_PENDING_S)
    left.with_suffix(".joined").touch()
    with gather_ahead(ranks, text) as hear:
        return [len(one) for one in hear()]


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    ranks = ranks_here()
    for name, scene in SCENES.items():
        ranks.gather("the scene begins")  # and all connections stand
        left, text = folder / name, LONG if name == "at length" else "a"
        if rank == 1:
            print(json.dumps({"scene": name, "heard": joined(ranks, left, text)}), flush=True)
        else:
            said = answer(scene, ranks, left, text)
            waited = left.with_suffix(".joined").exists()
            print(json.dumps({"scene": name, "said": said, "waited": waited}), flush=True)
    if rank == 0:
        greedy_end()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
