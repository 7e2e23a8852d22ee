"""What a dead batch met, taken right after the way back, when weights, buffers and generators are as they were."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.training.guard import Refusal, StepGuard, StepOutcome
from failsoft.training.letters.deadletters import LetterPolicy
from failsoft.training.letters.fingerprints import (
    bytes_of,
    device_of,
    generators_digest,
    pack_generators,
    tensors_digest,
)
from failsoft.training.letters.letter import Circumstances
from failsoft.training.letters.payloads import Payloads
from failsoft.training.letters.trials import FOREIGN
from failsoft.training.ranks import Ranks, SoloRank
from failsoft.training.sharding import has_shards
from failsoft.training.state import model_tensors

_T = TypeVar("_T")


@runtime_checkable
class KnowsSources(Protocol):
    """A task that can say where samples came from."""

    def sources(self, indices: NDArray[np.int64]) -> Sequence[str]:
        """Shard or file of each sample, in order."""
        ...


@runtime_checkable
class KnowsPayload(Protocol):
    """A task that can hand out the raw input of samples."""

    def payload(self, indices: NDArray[np.int64]) -> Mapping[str, Tensor]:
        """The input tensors by name, as the loss gets them."""
        ...


@dataclass(kw_only=True)
class Witness:
    """Takes down the circumstances of one rank's refused batches. Costs nothing while nothing is refused."""

    model: nn.Module
    """The bare model."""
    task: object = None
    """Asked for sources and payload where it knows them."""
    guard: object = None
    """Asked for the limit that a spike went above, where it is a :class:`StepGuard`."""
    ranks: Ranks | None = None
    policy: LetterPolicy | None = None
    payloads: Payloads | None = None
    shares_at: Callable[[int], tuple[int, ...] | None] = lambda _position: None
    """How the batch at a position was divided among the ranks; None: evenly."""
    on_lost: Callable[[str], object] = lambda _why: None
    """Told the first time that the task's own code fails at what it is asked here; it costs a field, not the run."""

    def __post_init__(self) -> None:
        """Look once at what never changes."""
        self._ranks: Ranks = self.ranks or SoloRank()
        self._policy = self.policy or LetterPolicy()
        self._lost_words = False

    def of(self, outcome: StepOutcome) -> Circumstances:
        """What the refused batch met; called after the way back and before anything else moves.

        Args:
            outcome: the refused step; the task is asked about its sample ids.
        """
        keeps = self._policy.keep_generators
        generators = pack_generators(device_of(self.model)) if keeps else None
        return Circumstances(
            rank=self._ranks.rank,
            world=self._ranks.world,
            sources=self._asked(lambda: self._sources(outcome.sample_ids)) or {},
            spike_limit=spike_limit_of(self.guard, outcome),
            model_digest=model_digest(self.model, max_bytes=self._policy.max_digest_bytes),
            generators=generators,
            generators_digest=None if generators is None else generators_digest(generators),
            payload=self._asked(lambda: self._payload(outcome)),
            threads=torch.get_num_threads(),
            shares=self.shares_at(outcome.position),
        )

    def of_undone(self, sample_ids: Sequence[int]) -> Circumstances:
        """What is still known of a batch that a rollback took back."""
        sources = self._asked(lambda: self._sources(sample_ids)) or {}
        return Circumstances(rank=self._ranks.rank, world=self._ranks.world, sources=sources)

    def _asked(self, ask: Callable[[], _T]) -> _T | None:
        try:
            return ask()
        except (*FOREIGN, OSError) as error:
            if not self._lost_words:
                self.on_lost(f"{type(error).__name__}: {error}; what the task was asked of a dead batch stays unknown")
            self._lost_words = True
            return None

    def _sources(self, sample_ids: Sequence[int]) -> dict[str, int]:
        if not isinstance(self.task, KnowsSources) or not len(sample_ids):
            return {}
        return dict(Counter(self.task.sources(_indices(sample_ids))))

    def _payload(self, outcome: StepOutcome) -> str | None:
        shelf = self.payloads
        if shelf is None or not shelf.keeps or not outcome.sample_ids or not isinstance(self.task, KnowsPayload):
            return None
        return shelf.keep(outcome.position, self.task.payload(_indices(outcome.sample_ids)))


def model_digest(model: nn.Module, *, max_bytes: int | None = None) -> str | None:
    """Digest of parameters and buffers; None when they are more than ``max_bytes``, or no rank has them all."""
    tensors = model_tensors(model)
    if has_shards(model):
        return None
    return None if max_bytes is not None and bytes_of(tensors) > max_bytes else tensors_digest(tensors)


def spike_limit_of(guard: object, outcome: StepOutcome) -> float | None:
    """The number that a refused spike went above, while the guard still has it; None for other refusals."""
    if not isinstance(guard, StepGuard):
        return None
    watch = {Refusal.LOSS_SPIKE: guard.loss_watch, Refusal.GRADIENT_SPIKE: guard.norm_watch}.get(
        outcome.refusal or Refusal.ELSEWHERE
    )
    return None if watch is None or not math.isfinite(watch.limit) else watch.limit


def _indices(sample_ids: Sequence[int]) -> NDArray[np.int64]:
    return np.asarray(sample_ids, dtype=np.int64)
