"""A split as numbers, ready to be cut into batches by index. Free of torch."""

# B texts of the batch, T words of its longest text, U different words of the batch, K characters of the longest word

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from failsoft.models.corpus import Utterance
from failsoft.models.distortion import Words, distorted
from failsoft.models.labels import OUTSIDE, LabelSet
from failsoft.models.recipe import Distortion
from failsoft.models.tokens import PAD, TextCodec

IGNORED_TAG = -100
"""Tag of padding: the loss passes it over."""

Batch = dict[str, NDArray[np.generic]]
"""``word_ids`` (B, T), ``surface`` (B, T: rows of ``char_ids``), ``char_ids`` (U, K), ``mask`` (B, T),
``places`` (N,: where the mask is true, in the flattened grid), ``intent`` (B,), ``doubt`` (B,: how little the text says
of its intent), ``tags`` (B, T); all int64 but the mask (bool) and the doubt (float32)."""


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
    beyond: NDArray[np.int64]
    """Words of each sample that were not read, because it is longer than the codec reads."""
    distortion: Distortion | None = None
    """What :meth:`take` does to the texts; None leaves them as they are."""

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.ids)

    def for_training(self, distortion: Distortion) -> EncodedSplit:
        """The same split, whose batches teach doubt."""
        return replace(self, distortion=distortion)

    def take(self, indices: NDArray[np.integer]) -> Batch:
        """The samples at ``indices`` (at least one), padded to the longest among them. A pure function of its input."""
        lengths = self.lengths[indices]
        mask = np.arange(int(lengths.max())) < lengths[:, None]
        words, doubt = self._words(indices, mask.shape), np.zeros(len(indices), dtype=np.float32)
        if self.distortion is not None:
            words, doubt = distorted(words, mask, self.distortion, np.random.default_rng(indices))
        return {
            "word_ids": words.word_ids_BT,
            "surface": words.surface_BT,
            "char_ids": words.char_ids_UK,
            "mask": mask,
            "places": np.flatnonzero(mask),
            "intent": self.intent[indices],
            "doubt": doubt,
            "tags": np.where(mask, self.tags[indices, : mask.shape[1]], IGNORED_TAG),
        }

    def _words(self, indices: NDArray[np.integer], shape: tuple[int, ...]) -> Words:
        """The words of a batch, with the spelling of no others."""
        used, surface = np.unique(self.surface[indices, : shape[1]], return_inverse=True)
        char_ids = self.char_ids[used]
        widest = int((char_ids != PAD).sum(axis=1).max())
        return Words(
            word_ids_BT=self.word_ids[indices, : shape[1]],
            surface_BT=surface.reshape(shape).astype(np.int64),
            char_ids_UK=char_ids[:, :widest],
        )


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
        beyond=encoded.left_out_B.astype(np.int64),
    )
