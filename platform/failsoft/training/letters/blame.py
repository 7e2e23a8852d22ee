"""Which samples of a bad batch are bad alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from failsoft.training.letters.diagnosis import Seen
from failsoft.training.letters.precision import Precision
from failsoft.training.letters.trials import Limits, Share, Trial, Trials

MAX_TRIES = 2048
"""Forward and backward passes that finding them may take."""
MAX_NAMED = 64


@dataclass(frozen=True, kw_only=True)
class Blame:
    """The samples that are bad alone."""

    samples: tuple[int, ...] = ()
    complete: bool = True
    """Whether every sample was looked at, alone or in a group that was fine as a whole."""
    why: str = ""
    """What kept it from being so."""


def blame(
    trials: Trials,
    model: nn.Module,
    indices: NDArray[np.int64],
    *,
    how: Precision = Precision.AS_TRAINED,
    limits: Limits | None = None,
) -> Blame:
    """Try samples apart from each other, with dropout off and BatchNorm's own statistics, so that they can't mix.

    Numbers that are not finite are found by halving: a group that is fine is done with, one bad sample of a thousand
    costs ten tries. A spike drowns in a group's mean, so with ``limits`` each sample is tried alone.
    """
    spikes = limits is not None and (limits.loss, limits.grad_norm) != (np.inf, np.inf)
    model_was_training = model.training
    model.eval()
    try:
        search = _Search(lambda group: trials.run("alone", model, [Share(indices=group)], how=how, limits=limits))
        groups = [indices[place : place + 1] for place in range(len(indices))] if spikes else [indices]
        return search.through(groups)
    finally:
        model.train(model_was_training)


class _Search:
    def __init__(self, attempt: Callable[[NDArray[np.int64]], Trial]) -> None:
        self._attempt = attempt

    def through(self, groups: Sequence[NDArray[np.int64]]) -> Blame:
        """Depth first, in order, so that what is found within the budget is a beginning of the batch."""
        waiting, found, tries, unknown = list(reversed(groups)), list[int](), 0, ""
        while waiting and tries < MAX_TRIES and len(found) < MAX_NAMED:
            group, tries = waiting.pop(), tries + 1
            trial = self._attempt(group)
            if trial.seen is Seen.FINE:
                continue
            if len(group) > 1:
                middle = len(group) // 2
                waiting += [group[middle:], group[:middle]]
            elif trial.seen is Seen.BAD:
                found.append(int(group[0]))
            else:
                unknown = trial.why
        if waiting:
            unknown = unknown or f"stopped after {tries} tries and {len(found)} bad samples"
        return Blame(samples=tuple(found), complete=not unknown, why=unknown)
