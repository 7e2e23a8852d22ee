"""Which samples make up global batch number ``position``: a pure function, so that nothing is lost or seen twice.

The order of an epoch is a permutation computed on demand: a Feistel cipher over the next power of four, walked until
it falls inside the range (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). No list is kept:
10^9 samples cost as much memory as 10. The state of the data is one integer; world size, loaders and prefetch don't
enter it.

The last batch of an epoch holds what is left, so every epoch sees every sample exactly once; a batch never spans two
epochs. Ranks take every ``world``-th sample of the batch; on a short batch some ranks may get one sample less, or none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError

_ROUNDS = 8
_U64 = np.uint64


@dataclass(frozen=True, kw_only=True)
class GlobalBatches:
    """The sample order of a run over ``num_samples`` samples, in global batches of ``global_batch``."""

    num_samples: int
    global_batch: int
    """Samples of one update over all ranks; stays the same when the world is resized."""
    seed: int

    def __post_init__(self) -> None:
        """Refuse sizes that hold nothing."""
        if not 1 <= self.num_samples <= 2**62:
            raise ConfigError(f"num_samples is {self.num_samples}; the corpus needs at least one sample")
        if self.global_batch < 1:
            raise ConfigError(f"global_batch is {self.global_batch}; an update needs at least one sample")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}; use 0 or a positive integer")

    @property
    def batches_per_epoch(self) -> int:
        """Batches of an epoch, the short last one included."""
        return -(-self.num_samples // self.global_batch)

    def epoch_of(self, position: int) -> int:
        """The epoch that a batch belongs to, from 0."""
        return position // self.batches_per_epoch

    def global_indices(self, position: int) -> NDArray[np.int64]:
        """Sample indices of one whole global batch, in order."""
        if position < 0:
            raise ConfigError(f"position is {position}; it counts global batches from 0")
        epoch, batch = divmod(position, self.batches_per_epoch)
        first = batch * self.global_batch
        places = np.arange(first, min(first + self.global_batch, self.num_samples), dtype=_U64)
        return _permute(places, self.num_samples, _round_keys(self.seed, epoch)).astype(np.int64)

    def stretch(self, position: int, count: int) -> list[NDArray[np.int64]]:
        """Up to ``count`` batches from ``position`` on, none beyond its epoch; far cheaper than one by one."""
        if position < 0 or count < 1:
            raise ConfigError(f"position is {position} and count {count}; ask for at least one batch, from 0")
        epoch, batch = divmod(position, self.batches_per_epoch)
        first, size = batch * self.global_batch, self.global_batch
        places = np.arange(first, min(first + size * count, self.num_samples), dtype=_U64)
        found = _permute(places, self.num_samples, _round_keys(self.seed, epoch)).astype(np.int64)
        return [found[at : at + size] for at in range(0, len(found), size)]

    def indices(self, position: int, rank: int, world: int) -> NDArray[np.int64]:
        """One rank's share of a global batch. The shares of all ranks are disjoint and make up the batch."""
        if not 0 <= rank < world:
            raise ConfigError(f"rank is {rank} in a world of {world}; ranks count from 0 to {world - 1}")
        return self.global_indices(position)[rank::world]


def _round_keys(seed: int, epoch: int) -> NDArray[np.uint64]:
    return np.random.SeedSequence([seed, epoch]).generate_state(_ROUNDS, np.uint64).astype(_U64, copy=False)


def _permute(places: NDArray[np.uint64], size: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Encrypt each place, again and again until it is below ``size``; a bijection on ``range(size)``."""
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    out = _feistel(places, half_bits, keys)
    while (outside := out >= _U64(size)).any():  # at most 3 of 4 fall outside, so a few walks settle all
        out[outside] = _feistel(out[outside], half_bits, keys)
    return out


def _feistel(values: NDArray[np.uint64], half_bits: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    shift, mask = _U64(half_bits), _U64((1 << half_bits) - 1)
    left, right = values >> shift, values & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << shift) | right


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014); wraps around by design."""
    values = (values ^ (values >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> _U64(27))) * _U64(0x94D049BB133111EB)
    return values ^ (values >> _U64(31))
