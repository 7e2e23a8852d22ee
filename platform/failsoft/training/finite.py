"""Whether every number of a tensor is finite: exactly, in any float dtype, at a fraction of the cost of copying it.

IEEE 754 orders numbers as it orders their bits. Read as signed integers, Inf and NaN without a sign are above all
finite numbers; read as unsigned ones, those with a sign are above everything. So two maxima of the bits decide. Whole
chunks of float32 and float64 are asked for their sum of squares first, which reads once: NaN and Inf never leave it
finite, and where large finite numbers overflow it, the bits decide as always.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Bytes = NDArray[np.uint8]
Probe = Callable[[Bytes], bool]
CHUNK_BYTES = 512 * 1024
"""Read at a time: source and copy of a chunk fit into a core's second-level cache, so the second reading is cheap. Also
below the size from which a C library's memcpy goes around the caches."""


@dataclass(frozen=True, kw_only=True)
class _Bits:
    signed: np.dtype[Any]
    unsigned: np.dtype[Any]
    first_ill: int
    """Bits of the smallest non-negative number that is not finite."""

    sign: int
    """The sign's bit alone."""


def _bits(size: int, first_ill: int) -> _Bits:
    return _Bits(
        signed=np.dtype(f"i{size}"), unsigned=np.dtype(f"u{size}"), first_ill=first_ill, sign=1 << (8 * size - 1)
    )


_OF_FLOATS: dict[torch.dtype, _Bits] = {
    torch.float64: _bits(8, 0x7FF0_0000_0000_0000),
    torch.float32: _bits(4, 0x7F80_0000),
    torch.bfloat16: _bits(2, 0x7F80),
    torch.float16: _bits(2, 0x7C00),
    torch.float8_e5m2: _bits(1, 0x7C),
    torch.float8_e4m3fn: _bits(1, 0x7F),  # it has no Inf
    torch.complex128: _bits(8, 0x7FF0_0000_0000_0000),  # two floats each
    torch.complex64: _bits(4, 0x7F80_0000),
    torch.complex32: _bits(2, 0x7C00),
}


_IN_NUMPY: dict[torch.dtype, np.dtype[Any]] = {torch.float64: np.dtype("f8"), torch.float32: np.dtype("f4")}
ROW = 8192
_ROW_SUMS: Callable[..., Any] | None = getattr(np, "vecdot", None)  # numpy 1 has none
_ONES = {dtype: np.ones(CHUNK_BYTES // dtype.itemsize // ROW, dtype=dtype) for dtype in _IN_NUMPY.values()}
_highest: Callable[..., Any] = np.maximum.reduce


def can_be_ill(dtype: torch.dtype) -> bool:
    """Whether numbers of this dtype may be NaN or Inf; integers and booleans may not."""
    return dtype.is_floating_point or dtype.is_complex


def probe_of(dtype: torch.dtype) -> Probe:
    """The quickest way to tell whether bytes, read as this dtype, are all finite.

    It takes whole numbers, aligned to their size; best no more than :data:`CHUNK_BYTES`, since it may read twice. To be
    called under ``np.errstate(over="ignore", invalid="ignore")``.
    """
    if not can_be_ill(dtype):
        return lambda _raw: True
    bits = _OF_FLOATS.get(dtype)
    if bits is None:
        return lambda raw: bool(torch.isfinite(torch.from_numpy(raw).view(dtype).float()).all())
    exact = partial(_finite_by_bits, bits)
    wide = squared(dtype)
    return exact if wide is None else partial(_finite_by_squares, wide, exact)


def _finite_by_bits(bits: _Bits, raw: Bytes) -> bool:
    if not raw.size:
        return True
    if _highest(raw.view(bits.signed)) >= bits.first_ill:
        return False
    return bool(_highest(raw.view(bits.unsigned)) < bits.first_ill + bits.sign)


def _finite_by_squares(dtype: np.dtype[Any], exact: Probe, raw: Bytes) -> bool:
    return exact(raw) if raw.size != CHUNK_BYTES else squares_finite(raw.view(dtype).reshape(-1, ROW)) or exact(raw)


def squares_finite(rows: NDArray[Any]) -> bool:
    """Whether the sum of squares of one chunk is finite, and so all of it; when not, that may be an overflow.

    Args:
        rows: a chunk of :func:`squared` dtype in rows of :data:`ROW`, which BLAS does not hand to threads of its own:
            those would fight with the training for the cores.
    """
    if _ROW_SUMS is None:
        return False
    return math.isfinite(np.dot(_ROW_SUMS(rows, rows), _ONES[rows.dtype]))  # this dot is quicker than any reduction


def squared(dtype: torch.dtype) -> np.dtype[Any] | None:
    """Numpy's name of a dtype whose chunks are asked for their sum of squares first; None for others."""
    return None if _ROW_SUMS is None else _IN_NUMPY.get(dtype)


def all_finite(tensor: Tensor) -> bool:
    """Whether every number is finite; on any device (elsewhere than in host RAM with one sync), in any dtype."""
    if not can_be_ill(tensor.dtype) or not tensor.numel():
        return True
    if tensor.device.type != "cpu":
        return bool(torch.isfinite(tensor.float() if tensor.itemsize == 1 else tensor).all())
    raw, finite = raw_bytes(tensor), probe_of(tensor.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return all(finite(raw[at : at + CHUNK_BYTES]) for at in range(0, raw.size, CHUNK_BYTES))


def first_ill(tensors: Mapping[str, Tensor]) -> str | None:
    """Name of the first tensor that holds NaN or Inf; None when all are finite: one sync for all devices then."""
    here = {name: tensor for name, tensor in tensors.items() if tensor.device.type == "cpu"}
    away = [tensor for name, tensor in tensors.items() if name not in here]
    suspects = here if finite_on_devices(away) else tensors
    return next((name for name, tensor in suspects.items() if not all_finite(tensor)), None)


def finite_on_devices(tensors: list[Tensor]) -> bool:
    """Whether tensors on accelerators are all finite, with one host sync while they are."""
    floats = [_as_wide_floats(tensor) for tensor in tensors if can_be_ill(tensor.dtype) and tensor.numel()]
    if not floats:
        return True
    largest = torch.nn.utils.get_total_norm(floats, norm_type=math.inf)  # NaN and Inf both survive a maximum
    return math.isfinite(float(largest)) or all(all_finite(tensor) for tensor in floats)


def _as_wide_floats(tensor: Tensor) -> Tensor:
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.float() if tensor.itemsize == 1 else tensor


def dense_view(tensor: Tensor) -> Tensor | None:
    """All numbers as one dimension in the order of memory, without a copy; None where memory has gaps or repeats."""
    if tensor.is_conj() or tensor.is_neg():
        return None
    if not tensor.is_contiguous():
        strides = tensor.stride()
        tensor = tensor.permute(sorted(range(tensor.ndim), key=lambda dim: -strides[dim]))
        if not tensor.is_contiguous():
            return None
    return tensor.view(-1)


def flat(tensor: Tensor) -> Tensor:
    """All numbers as one dimension: in the order of memory and without a copy where that can be, else a copy."""
    dense = dense_view(tensor)
    return tensor.resolve_conj().resolve_neg().contiguous().view(-1) if dense is None else dense


def raw_bytes(tensor: Tensor) -> Bytes:
    """The memory of a tensor in host RAM, in the order of :func:`flat`; shared where that shares, else of a copy."""
    if tensor.dtype in _IN_NUMPY and tensor.is_contiguous() and not tensor.is_neg():
        array: NDArray[Any] = tensor.numpy()  # a microsecond instead of five, which adds up over a model's tensors
        return array.reshape(-1).view(np.uint8)
    raw: Bytes = flat(tensor).view(torch.uint8).numpy()
    return raw
