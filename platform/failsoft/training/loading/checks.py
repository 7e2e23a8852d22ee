"""What a sample must satisfy before it is trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from failsoft.errors import ConfigError
from failsoft.training.loading.sample import BadKind

Form = tuple[tuple[str, str], ...]
"""What two samples must share to be stacked: for each leaf its place, and its type, shape and dtype."""
_LARGE_BYTES = 64 * 1024
_DEEPEST = 32
_COUNTS: frozenset[type] = frozenset({int, bool, str, bytes, type(None)})
_NUMBERS: frozenset[type] = frozenset({Tensor, np.ndarray, float})
_HOLDERS: frozenset[type] = frozenset({tuple, list, dict})
Judgement = tuple[BadKind, str]
"""What is wrong with a sample, and how, in words."""


@dataclass(frozen=True, kw_only=True)
class SampleChecks:
    """The checks of one data set. All are made in the process that loads. Picklable if its functions are."""

    max_length: int | None = None
    """Longest sample; None does not look."""
    length_of: Callable[[Any], int] = len
    """What ``max_length`` is compared with."""
    finite: bool = True
    """Refuse NaN and Inf in any tensor or array of a sample."""
    like: object = None
    """An example: every sample must have its names, types and shapes. None: a sample is only compared with the rest of
    its batch, where most must agree; an odd one that is alone, or one of two halves, can't be told then."""
    check: Callable[[Any], str | None] | None = None
    """The user's own: what is wrong in words, None when nothing is. What it raises is wrong, too."""

    def __post_init__(self) -> None:
        """Refuse a limit that nothing meets."""
        if self.max_length is not None and self.max_length < 1:
            raise ConfigError(f"max_length is {self.max_length}; use 1 or more, or None for no limit")

    def judge(self, sample: object) -> Judgement | None:
        """Length, form and the user's check. Finiteness is looked at apart: for small samples by the batch."""
        if self.max_length is not None and not (length := self.length_of(sample)) <= self.max_length:
            return BadKind.TOO_LONG, f"length {length:,}, at most {self.max_length:,}"
        if self.like is not None and (form := form_of(sample)) != self._form:
            return BadKind.MALFORMED, difference(form, self._form)
        said = None if self.check is None else self.check(sample)
        return None if said is None else (BadKind.MALFORMED, said)

    @cached_property
    def _form(self) -> Form:
        return form_of(self.like)


def difference(form: Form, wanted: Form) -> str:
    """The first thing in which a sample's form is not as it should be, in words."""
    here, there = dict(form), dict(wanted)
    path = next((path for path in {**there, **here} if here.get(path) != there.get(path)), "")
    return f"{path or 'the sample'} is {here.get(path, 'absent')}, elsewhere {there.get(path, 'absent')}"


def is_large(sample: object) -> bool:
    """Whether a sample is better looked at while it is in the processor's cache than later, in its batch."""
    if surely_all(sample, _is_small):
        return False
    return any(isinstance(leaf, Tensor | np.ndarray) and _bytes_of(leaf) >= _LARGE_BYTES for _, leaf in leaves(sample))


def not_finite(data: object) -> str | None:
    """Where NaN or Inf is in a sample or a whole batch, in words; None when nowhere."""
    if surely_all(data, _surely_finite):
        return None
    for path, leaf in leaves(data):
        if not _is_finite(leaf):
            return f"{path or 'the sample'} holds NaN or Inf"
    return None


def leaves(data: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, object]]:
    """Everything in nested mappings, tuples, lists and dataclasses, with where it is.

    What lies deeper than any sample should (or holds itself) is one leaf.
    """
    if depth >= _DEEPEST:
        yield path, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(data, Sequence) and not isinstance(data, str | bytes | bytearray):
        for place, value in enumerate(data):
            yield from leaves(value, f"{path}[{place}]", depth + 1)
    elif is_dataclass(data) and not isinstance(data, type):
        for one in fields(data):
            yield from leaves(getattr(data, one.name, None), f"{path}.{one.name}" if path else one.name, depth + 1)
    else:
        yield path, data


def form_of(sample: object) -> Form:
    """Names, types and shapes of a sample."""
    return tuple((path, _form(leaf)) for path, leaf in leaves(sample))


def _form(leaf: object) -> str:
    if isinstance(leaf, Tensor):
        where = "" if leaf.device.type == "cpu" else f" on {leaf.device}"
        return f"Tensor {tuple(leaf.shape)} {leaf.dtype}{where}{' with a graph' if leaf.requires_grad else ''}"
    if isinstance(leaf, np.ndarray):
        return f"{type(leaf).__name__} {tuple(leaf.shape)} {leaf.dtype}"
    return type(leaf).__name__


def surely_all(data: Any, well: Callable[[Any], bool], depth: int = 0) -> bool:
    """Whether all leaves surely are, for the usual kinds of samples: all nets of a text may take 8 µs together.

    Args:
        data: in tuples, lists and dictionaries; what else holds something is a leaf.
        well: of a leaf; False where it does not know its type.
        depth: of ``data`` itself.
    """
    kind = type(data)
    if kind not in _HOLDERS:
        return well(data)
    if depth >= _DEEPEST:
        return False
    for value in data.values() if kind is dict else data:  # noqa: SIM110 -- a generator takes twice the time
        if not surely_all(value, well, depth + 1):
            return False
    return True


def _surely_finite(leaf: object) -> bool:
    kind = type(leaf)
    return kind in _COUNTS or (kind in _NUMBERS and _is_finite(leaf))


def _is_small(leaf: Any) -> bool:
    kind = type(leaf)
    return kind in _COUNTS or kind is float or (kind in _NUMBERS and _bytes_of(leaf) < _LARGE_BYTES)


def _bytes_of(leaf: Tensor | NDArray[Any]) -> int:
    return (_numbers_of(leaf) if isinstance(leaf, Tensor) else leaf).nbytes


def _numbers_of(leaf: Tensor) -> Tensor:
    """What a sparse or nested tensor holds: as it is, torch tells neither its bytes nor what in it is finite."""
    if leaf.is_nested:
        return leaf.values()
    if leaf.layout is torch.strided:
        return leaf
    if leaf.layout is torch.sparse_coo:
        return leaf._values()
    return leaf.to_dense() if leaf.is_mkldnn else leaf.values()


def _is_finite(leaf: object) -> bool:
    if isinstance(leaf, Tensor):
        dtype = leaf.dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            return True
        numbers = _numbers_of(leaf)
        # One pass and no copy: a sum is finite unless something in it is not, or it overflows, so look again then.
        return isfinite(abs(numbers.sum().item())) or bool(torch.isfinite(numbers).all())
    if isinstance(leaf, np.ndarray):
        return leaf.dtype.kind not in "fc" or bool(np.isfinite(leaf).all())
    return not isinstance(leaf, float | complex | np.inexact) or bool(np.isfinite(leaf))
