"""How the samples of a global batch are divided among ranks that are not equally fast.

Each rank has a *share*, in sixteenths of a full one. The division is a pure function of the batch and of all shares, so
ranks that agree on the shares agree on the division: every sample lies on exactly one rank. Where all shares are equal
it is the plain one, every ``world``-th sample, to the bit.

The gradient stays that of the whole batch, since each rank's mean is weighted by its samples; it differs from the even
division's by rounding alone. (Batch norm takes its statistics from each rank's samples, and dropout draws for them, so
for these it differs as it does whenever the number of ranks changes.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError

FULL = 16
"""The share of a rank that keeps up."""
Indices = NDArray[np.int64]


def even(world: int) -> tuple[int, ...]:
    """Everybody's full share."""
    return (FULL,) * world


def sizes(count: int, shares: Sequence[int]) -> tuple[int, ...]:
    """How many of ``count`` samples each rank gets; by largest remainder, ties to the lower rank.

    Where there are as many samples as ranks, nobody is left without any: a rank without a sample computes one all the
    same, for nothing, since it must take part in the backward pass.

    Raises:
        ConfigError: no shares, or one that is not positive.
    """
    if not shares or not min(shares) >= 1:
        raise ConfigError(f"shares are {tuple(shares)}; each rank needs a share of 1 or more sixteenths")
    total = sum(shares)
    whole = [count * share // total for share in shares]
    rest = sorted(range(len(shares)), key=lambda rank: (-(count * shares[rank] % total), rank))
    for rank in rest[: count - sum(whole)]:
        whole[rank] += 1
    while count >= len(shares) and 0 in whole:
        whole[whole.index(max(whole))] -= 1
        whole[whole.index(0)] += 1
    return tuple(whole)


def part(whole: Indices, shares: Sequence[int], rank: int) -> Indices:
    """One rank's samples of a batch; may be empty. The parts of all ranks are disjoint and make up the batch."""
    if not 0 <= rank < len(shares):
        raise ConfigError(f"rank is {rank} with shares for {len(shares)} ranks; they count from 0")
    if len(set(shares)) == 1:
        return whole[rank :: len(shares)]
    each = sizes(len(whole), shares)
    first = sum(each[:rank])
    return whole[first : first + each[rank]]


def in_words(shares: Sequence[int]) -> str:
    """Like ``rank 1 has 8/16``."""
    lighter = [f"rank {rank} has {share}/{FULL}" for rank, share in enumerate(shares) if share < FULL]
    return ", ".join(lighter) or "even"
