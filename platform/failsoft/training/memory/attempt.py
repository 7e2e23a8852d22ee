"""One try of a step that ends alike on all ranks: in a verdict, or in the trouble that one of them had with memory."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from failsoft.health.json_object import json_value
from failsoft.training.backward import Compute
from failsoft.training.guard import StepGuard
from failsoft.training.memory.oom import CAN_BE, Trouble, free_caches, let_go, trouble_of
from failsoft.training.memory.shadow import Shadow
from failsoft.training.verdict import StepOutcome


class SharedAttempt:
    """Tries steps of a guard, whose passes it takes over. All ranks call it together.

    A rank that runs out of memory lets go of what it computed, does DDP's part with zeros (:class:`Shadow`), and says
    NaN in the verdict. Only after such a verdict the ranks ask each other whether it was memory, so a step without
    trouble costs no collective more than it did.

    Args:
        guard: with the model in its DDP wrapper where there are several ranks.
        on_alone: told of trouble that this rank can't share, before its error goes up.
    """

    def __init__(self, guard: StepGuard, on_alone: Callable[[Trouble], object] = lambda _trouble: None) -> None:
        self._guard = guard
        self._on_alone = on_alone
        self._own: Trouble | None = None
        self._solo = guard.ranks.world == 1
        self.unshared = None if self._solo else Shadow.possible(guard.model)
        """Why trouble of one rank can't be shared with the others; None where it can."""
        self._shadow: Shadow | None = None
        if isinstance(guard.model, DistributedDataParallel) and not self._solo and self.unshared is None:
            self._shadow = Shadow(guard.model)
            guard.run_passes = partial(self._passes, self._shadow)

    def __call__(
        self, compute: Compute | Sequence[Compute], shares: Sequence[float] | None, ids: Sequence[int], position: int
    ) -> StepOutcome | Trouble:
        """Passes and verdict; after trouble everything is as it was before.

        Raises:
            Exception: whatever the passes raise that has nothing to do with memory; and running out of it, where that
                can't be shared.
        """
        if self._shadow is None:
            return self._alone(compute, shares, ids, position)
        try:
            outcome = self._guard.attempt(compute, shares, sample_ids=ids, position=position)
        except CAN_BE as error:  # beside the passes, in the verdict say: the others wait there, and can't be told
            trouble = trouble_of(error, rank=self._guard.ranks.rank)
            if trouble is not None:
                self._on_alone(trouble)
            raise
        return outcome if outcome.refusal is None else self._agreed(outcome, self._shadow)

    def _alone(
        self, compute: Compute | Sequence[Compute], shares: Sequence[float] | None, ids: Sequence[int], position: int
    ) -> StepOutcome | Trouble:
        try:
            return self._guard.attempt(compute, shares, sample_ids=ids, position=position)
        except CAN_BE as error:
            trouble = trouble_of(error, rank=self._guard.ranks.rank)
            if trouble is None:
                raise
            if not self._solo:
                self._on_alone(trouble)
                raise
            let_go(error)
        return trouble

    def _passes(self, shadow: Shadow, compute: Compute | Sequence[Compute], shares: Sequence[float] | None) -> Tensor:
        """The guard's own passes; where memory runs out in them, what the other ranks need of this one, and NaN."""
        guard = self._guard
        self._own = None
        shadow.begins()
        try:
            return guard.backward.run(_marked(shadow, compute), shares)
        except CAN_BE as error:
            self._own = trouble_of(error, rank=guard.ranks.rank)
            if self._own is None:
                raise
            let_go(error)
        guard.optimizer.zero_grad(set_to_none=True)
        free_caches()
        try:
            shadow.make_up()
        except RuntimeError:  # the others do otherwise than this rank can know
            self._on_alone(self._own)
            raise
        # on the model's device: the verdict travels by the backend of the loss's device, the same one on all ranks
        nothing = torch.tensor(math.nan, device=guard.backward.device)
        if guard.scaler is not None:
            guard.scaler.scale(nothing)  # one that never scaled a loss would refuse to unscale
        return nothing

    def _agreed(self, outcome: StepOutcome, shadow: Shadow) -> StepOutcome | Trouble:
        """After a verdict that refuses: whether it was memory, the same answer everywhere."""
        own, self._own = self._own, None
        said = self._guard.ranks.gather("" if own is None else json.dumps(asdict(own)))
        first = next((text for text in said if text), None)
        if first is None:
            return outcome
        self._guard.go_back()
        shadow.renew()
        return Trouble(**json_value(first))


def _marked(shadow: Shadow, compute: Compute | Sequence[Compute]) -> Compute | Sequence[Compute]:
    if callable(compute):
        return shadow.marked(compute)
    return [*compute[:-1], shadow.marked(compute[-1])]
