"""A dataset that does whatever a test plans for a sample; picklable, so that workers have it, too."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from failsoft.errors import SampleError, SourceError
from failsoft.training.loading.sample import StandIn

WIDTH = 4


class StubbornError(Exception):
    """An error that no pickle takes and no text describes."""

    def __init__(self) -> None:
        super().__init__("stubborn")
        self.lock = threading.Lock()

    def __str__(self) -> str:
        raise RuntimeError("no text either")


class RowData:
    """Sample ``i`` is a row drawn from ``i``, and its target; ``faults`` says what becomes of some."""

    def __init__(self, size: int, faults: Mapping[int, str] | None = None, *, pause_s: float = 0.0) -> None:
        self.size = size
        self.pause_s = pause_s
        self.faults = dict(faults or {})

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        fault = self.faults.get(index)
        row = row_of(index)
        if self.pause_s:
            threading.Event().wait(self.pause_s)
        if fault is not None:
            return struck(fault, row, index)
        return {"x": row, "y": row.sum(), "index": torch.tensor(index)}

    def source_of(self, index: int) -> str:
        return f"shard-{index // 10}"


def row_of(index: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(index).normal(size=WIDTH))


def struck(fault: str, row: Tensor, index: int) -> Any:
    whole = {"x": row, "y": row.sum(), "index": torch.tensor(index)}
    match fault:
        case "raises":
            raise ValueError(f"sample {index} can't be decoded")
        case "stubborn":
            raise StubbornError
        case "digest":
            raise SampleError("bytes are changed")
        case "source":
            raise SourceError("nobody answers")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hangs":
            threading.Event().wait()
        case "leaves":
            os._exit(7)
    odd: dict[str, Any] = {
        "nan": whole | {"x": row * float("nan")},
        "shape": whole | {"x": torch.zeros(WIDTH + 1, dtype=torch.float64)},
        "lock": whole | {"x": threading.Lock()},
        "stands in": StandIn(sample=whole | {"x": torch.zeros_like(row)}, source="shard-0", why="remote rests"),
    }
    return odd[fault]
