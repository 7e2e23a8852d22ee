"""Running out of memory: how it is told from other errors, what it said, and how to let go of what it holds."""

from __future__ import annotations

import ctypes
import errno
import gc
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

import torch

_SIGNS = re.compile(
    r"out of memory|can't allocate memory|not enough memory|cannot allocate memory|std::bad_alloc"
    r"|CUBLAS_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)
"""What torch's allocators, and the libraries that allocate beside them, say in a plain RuntimeError."""
_ASKED = re.compile(r"(?:tried|trying) to allocate ([\d.]+) ?(bytes|[KMGT]i?B)", re.IGNORECASE)
_UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_MAX_SAID = 300
CAN_BE = (MemoryError, RuntimeError, OSError)
"""Errors that :func:`trouble_of` is worth asking about; ``torch.OutOfMemoryError`` is one of the second, and the
system's own refusal (of a mapping, a fork) one of the third."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What ran out of memory, and where. Holds nothing of what was computed."""

    said: str
    """The error's own words, cut to 300 characters."""
    where: str = ""
    """Innermost line of code outside torch, like ``network.py:41 in forward``."""
    requested_bytes: int | None = None
    """What was asked for; None where the error does not say."""
    rank: int = 0

    def in_words(self) -> str:
        """One line for the ledger."""
        place = f" at {self.where}" if self.where else ""
        return f"rank {self.rank} ran out of memory{place}: {self.said}"


def trouble_of(error: BaseException, *, rank: int = 0) -> Trouble | None:
    """What an error says of memory; None when it is about something else."""
    words = " ".join(str(error).split())
    if not (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and _SIGNS.search(words))
    ):
        return None
    said = words[:_MAX_SAID] or type(error).__name__
    return Trouble(said=said, where=_where(error), requested_bytes=requested_bytes(words), rank=rank)


def requested_bytes(words: str) -> int | None:
    """The size in "tried to allocate 2.50 GiB", in bytes; None when there is none."""
    found = _ASKED.search(words)
    if found is None:
        return None
    number, unit = found.groups()
    try:
        return round(float(number) * _UNITS[unit[0].lower()])
    except ValueError:
        return None


def let_go(error: BaseException) -> None:
    """Forget the frames of an error and of those it came from: their variables hold the activations of the passes.

    Without this a retry runs beside the batch that did not fit (the trap of most retry loops). Frames that still run
    keep their own.
    """
    for one in list(_chain(error)):
        if one.__traceback__ is not None:
            traceback.clear_frames(one.__traceback__)
        one.__traceback__ = None
        one.__context__ = one.__cause__ = None


def free_caches() -> None:
    """Give back what only waits to be used again: cycles of objects, CUDA's cache, the C library's free heap."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # musl has none
        trim(0)


def _chain(error: BaseException) -> Iterator[BaseException]:
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [other for other in (one.__context__, one.__cause__) if other is not None]


def _where(error: BaseException) -> str:
    torch_home = torch.__file__.rpartition("/")[0]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((torch_home, "<"))]
    if not own:
        return ""
    last = own[-1]
    return f"{last.filename.rpartition('/')[2]}:{last.lineno} in {last.name}"
