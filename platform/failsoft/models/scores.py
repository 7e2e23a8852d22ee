"""What a model answers for a batch of texts; plain numbers, so that who judges them needs no torch."""

# B texts, C intents

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray


class ScoredSpan(NamedTuple):
    """A slot value ``text[start:end]`` of the text as given, and how sure the model is of it (0..1, uncalibrated).

    The least certain word speaks for all three numbers.
    """

    start: int
    end: int
    slot: str
    confidence: float
    entropy: float | None = None
    """Of the tags, as a fraction of the largest possible; None: not measured."""
    margin: float | None = None
    """Distance between the two most probable tags; None: not measured."""


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

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> str | tuple[Any, ...]:
        """How it is pickled: as plain bytes and tuples where that says it all.

        A batch crosses processes for every answer. As an object with arrays in it, it takes twice as long: 36 µs for
        one text, there and back, and 81 µs for 16, against 16 and 29.
        """
        arrays = (self.intent_logits_BC, self.counts_B, self.oov_fraction_B, self.left_out_B)
        if not all(_is_plain(array) for array in arrays):
            return super().__reduce_ex__(protocol)
        flat = tuple((array.dtype.str, array.shape, array.tobytes()) for array in arrays)
        return _unpacked, (self.intents, flat, [[tuple(span) for span in row] for row in self.spans])

    def best_intents(self) -> list[str]:
        """The intent with the highest logit of each text. A row with NaN gets some intent: judge the logits first."""
        return [self.intents[number] for number in self.intent_logits_BC.argmax(axis=1).tolist()]


def doubt_of(log_probs_BTS: NDArray[np.floating]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Normalised entropy and distance of the two best tags for every word of a batch at once, both (B, T).

    The entropy of a certain word is 0, not NaN; a word whose scores hold NaN has NaN for both.
    """
    probs_BTS = np.exp(log_probs_BTS)
    surprise_BTS = probs_BTS * np.maximum(log_probs_BTS, -1e4)  # 0 * -inf is NaN
    tags = log_probs_BTS.shape[2]
    if tags < 2:
        return -surprise_BTS.sum(axis=2), probs_BTS[:, :, 0]
    best_BT2 = np.partition(probs_BTS, tags - 2, axis=2)[:, :, -2:]
    return -surprise_BTS.sum(axis=2) / math.log(tags), best_BT2[:, :, 1] - best_BT2[:, :, 0]


def _is_plain(array: object) -> bool:
    """Whether bytes, shape and type are all of it; an ill model may answer anything."""
    return isinstance(array, np.ndarray) and array.dtype.kind in "fiu"


def _unpacked(
    intents: tuple[str, ...], flat: Sequence[tuple[str, tuple[int, ...], bytes]], spans: list[list[Any]]
) -> ScoreBatch:
    logits_BC, counts_B, oov_fraction_B, left_out_B = (
        np.frombuffer(body, dtype=dtype).reshape(shape) for dtype, shape, body in flat
    )
    return ScoreBatch(
        intents=intents,
        intent_logits_BC=logits_BC,
        spans=[[ScoredSpan(*span) for span in row] for row in spans],
        counts_B=counts_B,
        oov_fraction_B=oov_fraction_B,
        left_out_B=left_out_B,
    )
