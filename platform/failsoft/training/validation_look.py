"""One rank's look at its share of the validation samples, in batches that shrink when they fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from failsoft.training.untouched import untouched


@runtime_checkable
class Validates(Protocol):
    """A task that knows samples to be judged on. Optional."""

    @property
    def validation_samples(self) -> int:
        """How many there are."""
        ...

    def validate(self, model: nn.Module, indices: NDArray[np.int64]) -> Mapping[str, float]:
        """Means over these samples (at least one), by name.

        Args:
            model: bare, in eval mode; gradients are off, and whatever the pass changes is put back.
            indices: from 0 to ``validation_samples``; fewer at a time after a failure.
        """
        ...


@dataclass(kw_only=True)
class Share:
    """What one rank found of its samples."""

    samples: int
    batch: int
    """Samples at a time in the end."""
    sums: dict[str, float] = field(default_factory=dict)
    """Value times samples; only of metrics that all of the samples went into."""
    absent: list[str] = field(default_factory=list)
    """Metrics that were given for some of the samples, or are not finite."""
    failures: int = 0
    why: str = ""
    """The last failure."""
    given_up: bool = False
    asked: bool = False
    """It was broken off: the rank was told to leave."""


def look(
    task: Validates,
    model: nn.Module,
    indices: NDArray[np.int64],
    *,
    batch: int,
    halvings: int,
    asked: Callable[[], bool] = lambda: False,
) -> Share:
    """Look at these samples. Raises nothing that the task raises, and leaves the model as it was.

    Args:
        task: knows samples and metrics.
        model: bare.
        indices: this rank's; may be empty.
        batch: samples at a time.
        halvings: how often a failure may halve that before the look is given up.
        asked: whether this rank was told to leave, which has no time for the rest of the look; asked between batches.
    """
    share = Share(samples=len(indices), batch=min(batch, max(1, len(indices))))
    with ExitStack() as stack:
        try:
            stack.enter_context(untouched(model))
        except Exception as error:  # noqa: BLE001 -- no memory to note the buffers, say: nothing was touched, so no look
            share.failures, share.why, share.given_up = 1, _said(error), True
            return share
        seen = _seen(task, model, indices, share, halvings, asked)
    if not share.given_up:
        share.sums, share.absent = _sums(seen)
    return share


def combined(told: Sequence[Share]) -> tuple[dict[str, float], list[str]]:
    """Means over all samples of all ranks, and the names of metrics that at least one rank could not compute."""
    looked = [share for share in told if share.samples]
    samples = sum(share.samples for share in looked)
    names = sorted({name for share in looked for name in (*share.sums, *share.absent)})
    whole = [name for name in names if all(name in share.sums for share in looked)]
    means = {name: sum(share.sums[name] for share in looked) / samples for name in whole}
    found = {name: mean for name, mean in means.items() if math.isfinite(mean)}
    return found, [name for name in names if name not in found]


_Seen = list[tuple[int, dict[str, float]]]


def _seen(
    task: Validates,
    model: nn.Module,
    indices: NDArray[np.int64],
    share: Share,
    halvings: int,
    asked: Callable[[], bool],
) -> _Seen:
    begin, seen = 0, _Seen()
    while begin < len(indices) and not share.given_up:
        if asked():
            share.asked = share.given_up = True
            return seen
        part = indices[begin : begin + share.batch]
        try:
            values = {str(name): float(value) for name, value in task.validate(model, part).items()}
        except Exception as error:  # noqa: BLE001 -- whatever a look raises must not end the run; it is counted and told
            share.why = _said(error)
        else:
            seen.append((len(part), values))
            begin += len(part)
            continue
        _shrink(share, halvings)  # after the except block, which held the tensors of the pass
    return seen


def _shrink(share: Share, halvings: int) -> None:
    share.failures += 1
    share.given_up = share.failures > halvings or share.batch == 1
    share.batch = max(1, share.batch // 2)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _sums(seen: _Seen) -> tuple[dict[str, float], list[str]]:
    """Value times samples, of metrics that every batch gave and that are finite in each; and the names of others."""
    every = dict.fromkeys(name for _, values in seen for name in values)
    sums = {name: sum(count * values.get(name, math.nan) for count, values in seen) for name in every}
    return {name: value for name, value in sums.items() if math.isfinite(value)}, _not_finite(sums.items())


def _not_finite(sums: Iterable[tuple[str, float]]) -> list[str]:
    return [name for name, value in sums if not math.isfinite(value)]


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"
