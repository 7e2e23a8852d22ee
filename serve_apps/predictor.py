"""The example model as the serving side wants it. Imported by model replicas only: it brings torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.models.predictor import IntentNerPredictor
from failsoft.models.scores import ScoreBatch


class ServedPredictor:
    """A loaded release that can also be broken on purpose."""

    only_computes = True

    def __init__(self, predictor: IntentNerPredictor) -> None:
        self._predictor = predictor

    @classmethod
    def load(cls, bundle: Bundle) -> ServedPredictor:
        """Load a verified bundle. One thread: replicas share cores, and one text gains nothing from more."""
        torch.set_num_threads(1)
        parts = (Role.WEIGHTS, Role.NETWORK, Role.CODEC, Role.LABELS)
        return cls(IntentNerPredictor.load_roles({role.value: bundle.part(role) for role in parts}))

    def predict(self, texts: Sequence[str]) -> ScoreBatch:
        """Score some clean texts."""
        return self._predictor.predict(texts)

    def break_weights(self) -> None:
        """Shuffle every weight matrix in memory: same numbers, no sense. What a drill's planned fault does."""
        chance = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weights in chain(self._predictor.model.parameters(), self._predictor.model.buffers()):
                order = torch.randperm(weights.numel(), generator=chance)
                weights.copy_(weights.flatten()[order].view_as(weights))
