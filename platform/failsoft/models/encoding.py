"""A split as numbers, ready to be cut into batches by index. Free of torch."""

# B texts of the batch, T words of its longest text, U different words of the batch, K characters of the longest word

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from failsoft.models.corpus import Utterance
from failsoft.models.labels import OUTSIDE, LabelSet
from failsoft.models.tokens import PAD, TextCodec

IGNORED_TAG = -100
"""Tag of padding: the loss passes it over."""

Batch = dict[str, NDArray[np.generic]]
"""``word_ids`` (B, T), ``surface`` (B, T: rows of ``char_ids``), ``char_ids`` (U, K), ``mask`` (B, T),
``places`` (N,: where the mask is true, in the flattened grid), ``intent`` (B,), ``tags`` (B, T); all int64 but the
mask, which is bool."""


@dataclass(frozen=True, kw_only=True)
class EncodedSplit:
    """All samples of a split, padded to its longest; :meth:`take` cuts batches out of it."""

    ids: list[str]
    """Sample names, for dead letters."""
    word_ids: NDArray[np.int64]
    surface: NDArray[np.int64]
    char_ids: NDArray[np.int64]
    lengths: NDArray[np.int64]
    """Words of each sample, at least 1."""
    intent: NDArray[np.int64]
    tags: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.ids)

    def take(self, indices: NDArray[np.integer]) -> Batch:
        """The samples at ``indices`` (at least one), padded to the longest among them. A pure function of its input."""
        lengths = self.lengths[indices]
        longest = int(lengths.max())
        mask = np.arange(longest) < lengths[:, None]
        used, surface = np.unique(self.surface[indices, :longest], return_inverse=True)
        char_ids = self.char_ids[used]
        widest = int((char_ids != PAD).sum(axis=1).max())
        return {
            "word_ids": self.word_ids[indices, :longest],
            "surface": surface.reshape(mask.shape).astype(np.int64),
            "char_ids": char_ids[:, :widest],
            "mask": mask,
            "places": np.flatnonzero(mask),
            "intent": self.intent[indices],
            "tags": np.where(mask, self.tags[indices, :longest], IGNORED_TAG),
        }


def encode_corpus(utterances: Sequence[Utterance], codec: TextCodec, labels: LabelSet) -> EncodedSplit:
    """Encode a split once, before training.

    Raises:
        CorpusError: an utterance has an intent or slot that is not among the labels.
    """
    encoded = codec.encode([utterance.text for utterance in utterances])
    tags = np.full(encoded.mask_BT.shape, OUTSIDE, dtype=np.int64)
    for row, utterance, offsets in zip(tags, utterances, encoded.offsets, strict=True):
        row[: len(offsets)] = labels.tags_of(utterance.spans, offsets)
    return EncodedSplit(
        ids=[utterance.id for utterance in utterances],
        word_ids=encoded.word_ids_BT.astype(np.int64),
        surface=encoded.surface_BT.astype(np.int64),
        char_ids=encoded.char_ids_UK.astype(np.int64),
        lengths=encoded.mask_BT.sum(axis=1).astype(np.int64),
        intent=np.array([labels.intent_index(utterance.intent) for utterance in utterances], dtype=np.int64),
        tags=tags,
    )
