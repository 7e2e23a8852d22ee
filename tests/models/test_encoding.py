"""Batches are a pure function of the indices."""

from __future__ import annotations

import numpy as np
import pytest

from failsoft.errors import ConfigError, CorpusError
from failsoft.models.corpus import Span, Utterance
from failsoft.models.encoding import IGNORED_TAG, Batch, encode_corpus
from failsoft.models.labels import LabelSet
from failsoft.models.recipe import Distortion
from failsoft.models.tokens import PAD, UNKNOWN, TextCodec

SAMPLES = [
    Utterance(id="a", text="play jazz", intent="play", spans=(Span(5, 9, "genre"),)),
    Utterance(id="b", text="will it rain in paris tomorrow", intent="weather", spans=(Span(16, 21, "city"),)),
    Utterance(id="c", text="", intent="play"),
]
CODEC = TextCodec.train(["play play jazz jazz rain rain paris paris"])
LABELS = LabelSet(("play", "weather"), ("city", "genre"))
SPLIT = encode_corpus(SAMPLES, CODEC, LABELS)


def same(left: Batch, right: Batch) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def test_a_batch_is_as_wide_as_its_longest_text() -> None:
    assert SPLIT.take(np.array([0, 2]))["word_ids"].shape == (2, 2)
    assert SPLIT.take(np.array([0, 1]))["word_ids"].shape == (2, 6)


def test_tags_follow_the_words_and_padding_is_ignored() -> None:
    tags = SPLIT.take(np.array([0, 1]))["tags"]
    assert [LABELS.tags[tag] for tag in tags[1].tolist()] == ["O", "O", "O", "O", "B-city", "O"]
    assert tags[0].tolist()[2:] == [IGNORED_TAG] * 4


def test_places_are_where_the_mask_is_true() -> None:
    batch = SPLIT.take(np.array([0, 1, 2]))
    assert batch["places"].tolist() == np.flatnonzero(batch["mask"]).tolist()
    assert len(batch["places"]) == 2 + 6 + 1


def test_a_text_reads_the_same_in_every_batch() -> None:
    alone, together = SPLIT.take(np.array([0])), SPLIT.take(np.array([1, 0]))
    spelt_alone = alone["char_ids"][alone["surface"][0]]
    spelt_together = together["char_ids"][together["surface"][1, :2]]
    width = spelt_alone.shape[1]
    assert np.array_equal(spelt_alone, spelt_together[:, :width])
    assert (spelt_together[:, width:] == PAD).all()
    assert np.array_equal(alone["word_ids"][0], together["word_ids"][1, :2])


def test_the_same_indices_are_distorted_the_same_way_each_time() -> None:
    training = SPLIT.for_training(Distortion(text_fraction=1.0))
    assert same(training.take(np.array([0, 1])), training.take(np.array([0, 1])))
    assert not same(training.take(np.array([0, 1])), SPLIT.take(np.array([0, 1])))
    assert len(training) == 3
    assert training.ids == ["a", "b", "c"]


def test_a_text_that_lost_every_word_deserves_full_doubt_and_keeps_its_tags() -> None:
    batch = SPLIT.for_training(Distortion(text_fraction=1.0, min_word_fraction=1.0)).take(np.array([0, 1]))
    assert batch["doubt"].tolist() == [1.0, 1.0]
    assert (batch["word_ids"][batch["mask"]] == UNKNOWN).all()
    assert np.array_equal(batch["tags"], SPLIT.take(np.array([0, 1]))["tags"])
    assert batch["surface"].max() < len(batch["char_ids"])
    assert batch["char_ids"].max() < CODEC.char_vocab_size


def test_an_undistorted_batch_has_no_doubt() -> None:
    untouched = SPLIT.for_training(Distortion(text_fraction=0.0)).take(np.array([0, 1, 2]))
    assert untouched["doubt"].tolist() == [0.0, 0.0, 0.0]


def test_labels_that_nobody_knows_are_refused_before_training() -> None:
    with pytest.raises(CorpusError, match="'fly'"):
        encode_corpus([Utterance(id="d", text="fly", intent="fly")], CODEC, LABELS)


def test_a_fraction_above_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"text_fraction is 1\.5"):
        Distortion(text_fraction=1.5)
