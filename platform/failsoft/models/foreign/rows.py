"""Instances become arrays: a batch of JSON rows for a model that takes tensors by name."""

# B items

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import CorpusError

Arrays = dict[str, NDArray[Any]]


def stacked(batch: Sequence[Any], kinds: Mapping[str, str]) -> Arrays:
    """A batch as arrays with B rows.

    Args:
        batch: instances. Of a model with several inputs each is a mapping with a value for every input; of one with a
            single input it may also be the value itself.
        kinds: numpy's name of the type of each input, such as ``float32``, in the model's own order.

    Raises:
        CorpusError: an input is missing, rows have different shapes, or a value is no number of its type.
    """
    return {name: _column(batch, name, kind, alone=len(kinds) == 1) for name, kind in kinds.items()}


def _column(batch: Sequence[Any], name: str, kind: str, *, alone: bool) -> NDArray[Any]:
    values = [_value(item, name, alone=alone) for item in batch]
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise CorpusError(f"the rows of input {name} have different shapes; pad them, or send them apart") from error
    if given.dtype.kind not in "biuf":
        raise CorpusError(f"input {name} holds {values[0]!r:.60}; the model reads numbers, as {kind}")
    return _exactly(given, name, np.dtype(kind))


def _exactly(given: NDArray[Any], name: str, kind: np.dtype[Any]) -> NDArray[Any]:
    """As the type that is read: 2.5 is no integer, and 300 is none of eight bits."""
    with np.errstate(invalid="ignore", over="ignore"):
        array: NDArray[Any] = given.astype(kind)
        lost = kind.kind in "iub" and not bool((array == given).all())
    if lost:
        raise CorpusError(f"input {name} holds a number that is no {kind}; the model would read another one")
    return array


def _value(item: Any, name: str, *, alone: bool) -> Any:
    if isinstance(item, Mapping):
        if name not in item:
            raise CorpusError(f"an instance has no {name!r}; it has {sorted(map(str, item))}")
        return item[name]
    if not alone:
        raise CorpusError(f"the model has several inputs; send an object with a value for {name!r} and each other one")
    return item
