"""What the recovery benchmark trains, the same under every launcher, and the marks that it leaves behind.

A step sleeps for most of its time, as one on a GPU would for the CPU, so that two workers fit on two cores. A system
trains while the file ``turn`` lies in its folder, and waits in between, so that all may stand ready side by side.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor, nn

WORKERS = 2
PACE_S = 0.02
CHECKPOINT_EVERY = 50
BATCH, WIDTH, SAMPLES = 8, 64, 4096
SEED = 7
_LOOK_S = 0.02


def toy_model() -> nn.Module:
    """Two layers, 17 k parameters."""
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, 1))


def toy_data() -> tuple[Tensor, Tensor]:
    """Inputs and targets."""
    inputs = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(SEED))
    return inputs, inputs.sum(1, keepdim=True)


def turn_of(folder: Path) -> Path:
    """While this file is there, the system trains."""
    return folder / "turn"


def await_turn(folder: Path) -> None:
    """Stand still until it is this system's turn."""
    turn = turn_of(folder)
    while not turn.exists():
        time.sleep(_LOOK_S)


class Marks:
    """One worker process's diary: a line when it came, and one for each step done, by a clock that all processes share.

    ``time.monotonic`` counts from the start of the machine on Linux, so processes of one machine may be compared.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        (folder / "marks").mkdir(parents=True, exist_ok=True)
        self._file: TextIO = (folder / "marks" / f"{rank}-{os.getpid()}").open("a", encoding="utf-8", buffering=1)
        self._write(0)

    def done(self, step: int) -> None:
        """Step number ``step`` (from 1) is done."""
        self._write(step)

    def close(self) -> None:
        """A worker that is killed never does this."""
        self._file.close()

    def _write(self, step: int) -> None:
        self._file.write(f"{time.monotonic():.6f} {step}\n")


def paced(work: Callable[[], Tensor]) -> Tensor:
    """One step's forward pass, in its time."""
    time.sleep(PACE_S)
    return work()
