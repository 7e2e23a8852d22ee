"""How many samples a run met, and how many of them were left out one by one: by people, or by the task itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypedDict, runtime_checkable

import torch

from failsoft.training.breaker import Advice
from failsoft.training.degradation import Degradation, DegradationKind, Degradations
from failsoft.training.loading.share import SyntheticShare
from failsoft.training.ranks import Ranks


@runtime_checkable
class Skips(Protocol):
    """A task that may leave samples of a batch out of its loss, say because they can't be decoded. Optional."""

    def take_skipped(self) -> int:
        """Samples left out on this rank since the last asking; the count starts anew."""
        ...


@runtime_checkable
class StandsIn(Protocol):
    """A task that may put something without weight in the place of samples that are out of reach. Optional."""

    def take_synthetic(self) -> int:
        """Such samples on this rank since the last asking; the count starts anew. They are not among the skipped."""
        ...


class Seen(TypedDict):
    """Over all ranks, since the last count."""

    samples: int
    skipped: int


class SampleCount:
    """Adds up between two snapshots, so that ranks agree once in a hundred steps and not in each."""

    def __init__(self, task: object, ranks: Ranks) -> None:
        self._skips = task if isinstance(task, Skips) else None
        self._stands_in = task if isinstance(task, StandsIn) else None
        self._ranks = ranks
        self.share = SyntheticShare()
        """Of samples that something without weight stood in for."""
        self._samples = 0
        self._left_out = 0

    def met(self, samples: int, *, left_out: int) -> None:
        """One batch over all ranks: ``samples`` that were trained on, and those that people left out of it."""
        self._samples += samples + left_out
        self._left_out += left_out

    def settled(self) -> Seen:
        """The count since last time, and a new start. All ranks call it together; a sum where the task may skip."""
        skipped, synthetic = self._taken()
        skipped += self._left_out
        self.share.met(self._samples, synthetic=synthetic)
        seen = Seen(samples=self._samples, skipped=min(skipped, self._samples))
        self._samples = self._left_out = 0
        return seen

    def forget(self) -> None:
        """The stretch since the last count is undone; what was skipped in it, too."""
        self._here()
        self._samples = self._left_out = 0

    def state_dict(self) -> dict[str, Any]:
        """The window of samples that are stood in for: an outage counts on in the attempt after a restart."""
        return {"stood_in": self.share.counts()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the window of a checkpoint on."""
        self.share.load_counts(state_dict["stood_in"])

    def advice(self) -> tuple[Advice, str]:
        """Whether too many samples are stood in for, and why in words; the same on all ranks."""
        return (Advice.STOP_DROP_RATE, self.share.in_words()) if self.share.too_much else (Advice.GO_ON, "")

    def tell(self, degradations: Degradations) -> None:
        """Say when the share of samples that are stood in for is alarming, and when it is not any more."""
        if self.share.alarming:
            degradations.began(
                Degradation(
                    kind=DegradationKind.SYNTHETIC,
                    cause=self.share.in_words(),
                    level="alarming",
                    cost="these samples are not trained on in this epoch; failsoft dlq names them",
                    way_back="ends when the sources answer again and the share falls",
                )
            )
        else:
            degradations.ended(DegradationKind.SYNTHETIC, why=self.share.in_words())

    def _taken(self) -> tuple[int, int]:
        """Skipped and stood in for, over all ranks; one sum, where the task may do either."""
        here = self._here()
        if self._skips is None and self._stands_in is None:
            return here
        skipped, synthetic = self._ranks.sum_(torch.tensor(here, dtype=torch.float64)).tolist()
        return round(skipped), round(synthetic)

    def _here(self) -> tuple[int, int]:
        skipped = 0 if self._skips is None else self._skips.take_skipped()
        return skipped, 0 if self._stands_in is None else self._stands_in.take_synthetic()
