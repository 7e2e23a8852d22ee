"""What a model answers for a batch of texts; plain numbers, so that who judges them needs no torch."""

# B texts, C intents

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class ScoredSpan(NamedTuple):
    """A slot value ``text[start:end]`` of the text as given, and how sure the model is of it (0..1, uncalibrated)."""

    start: int
    end: int
    slot: str
    confidence: float


@dataclass(frozen=True, kw_only=True)
class ScoreBatch:
    """One row per text, in the order asked. The logits are raw: they may hold NaN or Inf when the model is ill."""

    intents: tuple[str, ...]
    """Names of the columns of ``intent_logits_BC``."""
    intent_logits_BC: NDArray[np.float32]
    spans: list[list[ScoredSpan]]
    counts_B: NDArray[np.int32]
    """Words read of each text."""
    oov_fraction_B: NDArray[np.float32]
    """Share of each text's words that the training texts did not hold; 1 for a text without words."""
    left_out_B: NDArray[np.int32]
    """Words of each text that were too many to be read."""

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.spans)

    def best_intents(self) -> list[str]:
        """The intent with the highest logit of each text. A row with NaN gets some intent: judge the logits first."""
        return [self.intents[number] for number in self.intent_logits_BC.argmax(axis=1).tolist()]
