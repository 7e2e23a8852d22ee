"""How far two end states are from each other."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from failsoft.drills.training.folder_look import UNREADABLE
from failsoft.drills.training.inside.marks import Marks

State = Mapping[str, Tensor]


def end_state(marks: Marks, run: Path, results: Sequence[str], *, start: int = 1) -> State | None:
    """What the last process that ended by itself has learnt, and the result files; None: it left nothing.

    Of the last start only: what an earlier one held in memory when it failed is gone, unless somebody saved it.

    Args:
        marks: of the trial.
        run: its run's folder.
        results: files below it that count, too; one that is absent makes the state unlike any other.
        start: number of the last start.
    """
    ends = [mark for mark in marks.read() if mark["what"] == "end" and mark["attempt"] == start]
    found: dict[str, Tensor] = {}
    if ends:
        found |= torch.load(marks.file(str(ends[-1]["file"])), weights_only=True)
    for name in results:
        found |= {f"result {name}/{key}": tensor for key, tensor in _content(run / name).items()}
    return found or None


def distance(one: State, other: State) -> float:
    """Length of the difference over the length of ``other``, over all floating tensors of both.

    0.0: equal, also every other tensor. Infinite: something is not finite, of another shape, or not there to compare.
    """
    names = sorted(one.keys() & other.keys())
    results = {name for name in one.keys() ^ other.keys() if name.startswith("result ")}
    if not names or results:
        return math.inf
    difference = length = 0.0
    for name in names:
        left, right = one[name], other[name]
        if left.shape != right.shape or left.dtype != right.dtype:
            return math.inf
        if not left.is_floating_point():
            if _counts(name) and not torch.equal(left, right):
                return math.inf
            continue
        left, right = left.double(), right.double()
        difference += float((left - right).square().sum())
        length += float(right.square().sum())
    if not math.isfinite(difference):
        return math.inf
    return math.sqrt(difference) / max(math.sqrt(length), 1e-12)


def finite(state: State) -> bool:
    """Whether every number is."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in state.values() if tensor.is_floating_point())


def _counts(name: str) -> bool:
    """A batch norm's count of batches differs where one was left out, and says nothing about the weights."""
    return not name.endswith("num_batches_tracked")


def _content(path: Path) -> dict[str, Tensor]:
    if not path.exists():
        return {}
    with suppress(*UNREADABLE, pickle.UnpicklingError, SafetensorError):  # torn, or more than weights: its bytes tell
        if path.suffix == ".safetensors":
            return load_file(path)
        if path.suffix in {".pt", ".pth", ".ckpt", ".bin"}:
            return _tensors(torch.load(path, weights_only=True, map_location="cpu"), "")
    return {"bytes": torch.frombuffer(bytearray(path.read_bytes() or b"\0"), dtype=torch.uint8)}


def _tensors(value: object, name: str) -> dict[str, Tensor]:
    if isinstance(value, Tensor):
        return {name: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    found: dict[str, Tensor] = {}
    for key, one in items:
        found |= _tensors(one, f"{name}/{key}")
    return found
