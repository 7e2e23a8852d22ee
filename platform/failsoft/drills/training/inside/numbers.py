"""Faults in the numbers of a step: what comes out of a model, what its input holds, what memory there is for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from failsoft.drills.fault import DrillFault
from failsoft.drills.training.inside.marks import Marks
from failsoft.drills.training.inside.orders import Strike
from failsoft.training.faulty import InfGradient

SPIKE_FACTOR = 1000.0
"""A spike's outputs are so many times too large."""


def with_inf_gradient(tensors: Any, model: nn.Module | None) -> Any:
    """The loss, or the first of several, with an Inf in a gradient of the model; unchanged where it learns nothing."""
    learning = [] if model is None else [one for one in model.parameters() if one.requires_grad]
    if not learning:
        return tensors
    extra = InfGradient.apply(learning[0])  # type: ignore[no-untyped-call]
    if isinstance(tensors, Tensor):
        return tensors + extra.to(tensors.device)
    first, *rest = tensors
    return (first + extra.to(first.device), *rest)


def outputs_of(strikes: Sequence[Strike]) -> Callable[[Any], Any] | None:
    """What these strikes make of a model's outputs; None: nothing."""
    factor = 1.0
    for strike in strikes:
        if strike.fault.kind is DrillFault.NAN:
            factor = torch.nan
        elif strike.fault.kind is DrillFault.SPIKE:
            factor *= strike.fault.number("factor", SPIKE_FACTOR)
    if factor == 1.0:
        return None
    return lambda output: pytree.tree_map(lambda leaf: leaf * factor if _is_floating(leaf) else leaf, output)


class BoundFaults:
    """Faults that are bound to data: a replay of the same sample meets them again, also in the next attempt.

    The sample is known by the row of the model's input. Where the model is called without tensors in its arguments
    (with keywords only), a row can't be known, and the fault strikes once.
    """

    def __init__(self, marks: Marks, strikes: Sequence[Strike]) -> None:
        self._marks = marks
        kinds = {DrillFault.POISONED_SAMPLE, DrillFault.OUT_OF_MEMORY}
        self._strikes = tuple(strike for strike in strikes if strike.fault.kind in kinds)
        self._rows: dict[str, tuple[Tensor, int]] = {}
        for strike in self._strikes:
            path = marks.file(f"row-{strike.name}.pt")
            if path.exists():
                self._rows[strike.name] = torch.load(path, weights_only=True)

    def begin(self, strike: Strike, inputs: tuple[Any, ...]) -> bool:
        """Bind a fault to this input; False: it can't be bound, and strikes this once."""
        batch = _batch(inputs)
        if batch is None:
            return False
        row = strike.fault.seed % len(batch)
        bound = (batch[row].detach().cpu().clone(), len(batch))
        self._rows[strike.name] = bound
        torch.save(bound, self._marks.file(f"row-{strike.name}.pt"))
        return True

    def meet(self, inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], Tensor | None]:
        """The input as the model shall see it, and the rows of its output that shall be NaN, if any.

        Raises:
            torch.OutOfMemoryError: the sample's batch is met, and more than half of it at once.
        """
        ill: Tensor | None = None
        for strike, rows, of in self._met(inputs):
            if strike.fault.kind is DrillFault.OUT_OF_MEMORY:
                _fit(len(rows), of)
            else:
                ill = rows
        if ill is None:
            return inputs, None
        return _poisoned(inputs, ill)

    def _met(self, inputs: tuple[Any, ...]) -> Iterator[tuple[Strike, Tensor, int]]:
        batch = _batch(inputs) if self._rows else None
        if batch is None:
            return
        for strike in self._strikes:
            row, of = self._rows.get(strike.name, (None, 0))
            if row is not None and row.shape == batch.shape[1:]:
                same = (batch == row.to(batch.device)).reshape(len(batch), -1).all(1)
                if bool(same.any()):
                    yield strike, same, of


def out_of_memory(samples: int) -> torch.OutOfMemoryError:
    """As the allocator says it."""
    return torch.OutOfMemoryError(f"CUDA out of memory (planned by a drill): no room for a pass over {samples} samples")


def rows_to_nan(output: Any, rows: Tensor) -> Any:
    """Outputs whose first axis is the batch, with NaN where ``rows`` says so."""

    def spoiled(leaf: Any) -> Any:
        if not _is_floating(leaf) or leaf.ndim == 0:
            return leaf
        if len(leaf) != len(rows):
            return leaf
        return leaf.masked_fill(rows.reshape(-1, *[1] * (leaf.ndim - 1)).to(leaf.device), torch.nan)

    return pytree.tree_map(spoiled, output)


def _fit(samples: int, of: int) -> None:
    if samples > max(1, of // 2):
        raise out_of_memory(samples)


def _poisoned(inputs: tuple[Any, ...], rows: Tensor) -> tuple[tuple[Any, ...], Tensor | None]:
    first = next(index for index, one in enumerate(inputs) if _is_batch(one))
    if not inputs[first].is_floating_point():
        return inputs, rows  # token ids know no NaN; what the model says of them does
    mask = rows.reshape(-1, *[1] * (inputs[first].ndim - 1))
    return (*inputs[:first], inputs[first].masked_fill(mask, torch.nan), *inputs[first + 1 :]), None


def _batch(inputs: tuple[Any, ...]) -> Tensor | None:
    return next((one for one in inputs if _is_batch(one)), None)


def _is_batch(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim >= 1 and len(value) > 0


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
