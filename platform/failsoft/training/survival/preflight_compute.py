"""Products whose right answer is known, core by core and GPU by GPU, and patterns in memory.

Cores that now and then compute wrongly, without any error, are a fact of large fleets: about one core in a thousand
machines (Hochschild et al., "Cores that don't count", HotOS 2021; Dixit et al., "Silent data corruptions at scale",
2021). The factors are whole numbers so small that no rounding can occur on the way: with |a|, |b| <= 8 and 64 terms all
sums stay below 2^13, exact in float32 and TF32; with -1, 0, 1 they stay within 64, exact in bfloat16 and float16 too.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from failsoft.health.clock import Clock
from failsoft.training.survival.preflight import Finding, failed, passed

MATMUL = "matmul"
MEMORY = "memory pattern"

# S products in a stack, N rows and columns of each
_STACK, _SIDE = 32, 64
"""OpenBLAS gives a product of 64 x 64 x 64 or less to one thread, which is the one that was put upon a core."""
KNOWN_ANSWER = {8: 0x17C99B53, 1: 0xD09F6B3D}
"""CRC-32 of the right product as int32, by the largest factor; computed once with Python's whole numbers."""
_COPIES = 32
"""Of a stack on a GPU: 1024 products at once are some for each of its multiprocessors."""
_PATTERNS = (0x5555555555555555, 0xAAAAAAAAAAAAAAAA, 0x0000000000000000, 0xFFFFFFFFFFFFFFFF)

_GOLDEN = 0.618034
"""Of all shares of a round, this one spreads the places to begin most evenly."""

Flaw = Callable[[NDArray[np.int32]], NDArray[np.int32]]
"""A planned fault: what a bad core makes of a right product."""


def factors(largest: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Two stacks of matrices [S, N, N] of whole numbers from -largest to largest, the same on every machine."""
    place = np.arange(_STACK * _SIDE * _SIDE, dtype=np.int64)
    span = 2 * largest + 1
    first = (place * 7919 + place // 61) % 10_007 % span - largest
    second = (place * 104_729 + place // 53) % 10_009 % span - largest
    shape = (_STACK, _SIDE, _SIDE)
    return first.reshape(shape).astype(np.int32), second.reshape(shape).astype(np.int32)


def check(product: NDArray[np.int32]) -> int:
    """CRC-32 of a product, in one byte order everywhere: a single flipped bit changes it."""
    return zlib.crc32(product.astype("<i4").tobytes())


def known_answer(seconds: float, clock: Clock, *, turn: int = 0, flaw: Flaw | None = None) -> Finding:
    """Products in float32 on each core of this process in turn, each checked.

    Args:
        seconds: all cores together; every core that is reached computes at least one product.
        clock: ends it.
        turn: how often this was done before; each turn begins with another core, so that later ones reach those that
            this one has no time for.
        flaw: a planned fault.
    """
    cores = _cores()
    first, second = (factor.astype(np.float32) for factor in factors(8))
    until_s, products = clock.monotonic_s() + seconds, 0
    try:
        for core in _round(cores, turn):
            _go_to(core)
            product = (first @ second).astype(np.int32)
            products += 1
            if check(product if flaw is None else flaw(product)) != KNOWN_ANSWER[8]:
                return failed(MATMUL, f"{_named(core)} computes a product of whole numbers wrongly")
            if clock.monotonic_s() >= until_s:
                break
    finally:
        _go_back(cores)
    count = len(cores) or 1
    return passed(MATMUL, f"{products} products on {min(products, count)} of {count} cores")


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _round(cores: Sequence[int], turn: int) -> Iterator[int | None]:
    begin = int(turn * _GOLDEN % 1.0 * len(cores))
    return cycle([*cores[begin:], *cores[:begin]] or [None])


def _go_to(core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})  # of this thread alone


def _go_back(cores: Sequence[int]) -> None:
    if cores:
        os.sched_setaffinity(0, set(cores))


def _named(core: int | None) -> str:
    return "this machine" if core is None else f"core {core}"


def flip_a_bit(product: NDArray[np.int32]) -> NDArray[np.int32]:
    """A planned fault: the same with the lowest bit of one number turned."""
    wrong = product.copy()
    wrong.flat[wrong.size // 3] ^= 1
    return wrong


def memory_pattern(size_bytes: int) -> Finding:
    """Four patterns written to fresh memory and read back."""
    words = np.empty(max(1, size_bytes // 8), dtype=np.uint64)
    for pattern in _PATTERNS:
        words.fill(pattern)
        wrong = int(np.count_nonzero(words != np.uint64(pattern)))
        if wrong:
            return failed(MEMORY, f"{wrong} of {words.size} words do not read back as 0x{pattern:016x}")
    return passed(MEMORY, f"{words.nbytes >> 20} MiB, {len(_PATTERNS)} patterns")


def known_answer_on_device(device: str, seconds: float, clock: Clock) -> Finding:
    """The same products by torch on one device, in float32, bfloat16 and float16; each kind at least once.

    Args:
        device: ``cuda:0`` say.
        seconds: for all kinds together.
        clock: ends it.
    """
    import torch  # noqa: PLC0415 -- costs seconds in a fresh process, and only a GPU needs it

    name = f"{MATMUL} {device}"
    if device.startswith("cuda") and not torch.cuda.is_available():
        return failed(name, "torch sees no GPU where there should be one; is its build made for CUDA?")
    until_s, products, first_round = clock.monotonic_s() + seconds, 0, True
    while first_round or clock.monotonic_s() < until_s:
        for kind, largest in ((torch.float32, 8), (torch.bfloat16, 1), (torch.float16, 1)):
            first, second = (torch.from_numpy(factor).to(device=device, dtype=kind) for factor in factors(largest))
            product = (first.repeat(_COPIES, 1, 1) @ second.repeat(_COPIES, 1, 1)).reshape(
                _COPIES, _STACK, _SIDE, _SIDE
            )
            products += _COPIES
            alike = bool((product == product[0]).all())
            if not alike or check(product[0].to(torch.int32).cpu().numpy()) != KNOWN_ANSWER[largest]:
                return failed(name, f"a product of whole numbers in {kind} is wrong")
        first_round = False
    return passed(name, f"{products} products in float32, bfloat16 and float16")
