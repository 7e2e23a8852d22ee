"""Spans to tags and back, and the best sequence of tags that is allowed."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import CorpusError
from failsoft.models.corpus import Span
from failsoft.models.labels import LabelSet, best_tags, chunks

LABELS = LabelSet(("go", "stop"), ("city", "time"))
WORDS = [(0, 2), (3, 7), (8, 12), (13, 15)]


def test_a_span_begins_and_goes_on() -> None:
    tags = LABELS.tags_of([Span(3, 12, "time")], WORDS)
    assert [LABELS.tags[tag] for tag in tags] == ["O", "B-time", "I-time", "O"]


def test_a_word_belongs_to_a_span_when_they_share_a_character() -> None:
    tags = LABELS.tags_of([Span(4, 9, "city")], WORDS)
    assert [LABELS.tags[tag] for tag in tags] == ["O", "B-city", "I-city", "O"]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ([0, 0, 0, 0], []),
        ([1, 2, 1, 0], [Span(0, 7, "city"), Span(8, 12, "city")]),
        ([2, 2, 0, 0], [Span(0, 7, "city")]),
        ([1, 4, 4, 0], [Span(0, 2, "city"), Span(3, 12, "time")]),
        ([0, 0, 0, 3], [Span(13, 15, "time")]),
    ],
)
def test_tags_are_read_as_conlleval_reads_them(tags: list[int], expected: list[Span]) -> None:
    assert LABELS.spans_of(tags, WORDS) == expected


@given(st.sets(st.integers(0, 5), min_size=2, max_size=6), st.sampled_from(["city", "time"]))
def test_spans_on_word_borders_survive_the_way_to_tags_and_back(cuts: set[int], slot: str) -> None:
    words = [(4 * n, 4 * n + 3) for n in range(6)]
    ordered = sorted(cuts)
    spans = [Span(words[a][0], words[b - 1][1], slot) for a, b in itertools.pairwise(ordered)]
    assert LABELS.spans_of(LABELS.tags_of(spans, words), words) == spans


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_the_best_tags_are_the_best_of_all_allowed_sequences(seed: int, length: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(1, length, 5))
    legal = [
        path
        for path in itertools.product(range(5), repeat=length)
        if all(tag in (0, 1, 3) or (n > 0 and path[n - 1] in (tag - 1, tag)) for n, tag in enumerate(path))
    ]
    best = max(legal, key=lambda path: sum(scores[0, n, tag] for n, tag in enumerate(path)))
    assert best_tags(scores, np.array([length]))[0].tolist() == list(best)


def test_padding_does_not_change_the_tags() -> None:
    scores = np.random.default_rng(0).normal(size=(1, 6, 5))
    assert best_tags(scores, np.array([4]))[0].tolist() == best_tags(scores[:, :4], np.array([4]))[0].tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_still_give_allowed_tags(bad: float) -> None:
    (tags,) = best_tags(np.full((1, 3, 5), bad), np.array([3]))
    assert tags.shape == (3,)
    chunks(tags)


def test_a_model_without_slots_finds_none() -> None:
    only_intents = LabelSet(("go",), ())
    (tags,) = best_tags(np.zeros((1, 3, 1)), np.array([3]))
    assert only_intents.spans_of(tags, WORDS[:3]) == []


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(CorpusError, match="'fly' is not among"):
        LABELS.intent_index("fly")
    with pytest.raises(CorpusError, match="'price' is not among"):
        LABELS.tags_of([Span(0, 2, "price")], WORDS)
    with pytest.raises(CorpusError, match="twice"):
        LabelSet(("go", "go"), ())
    with pytest.raises(CorpusError, match="no intents"):
        LabelSet((), ())


def test_saved_labels_load_in_the_same_order(tmp_path: Path) -> None:
    LABELS.save(tmp_path / "labels.json")
    assert LabelSet.load(tmp_path / "labels.json") == LABELS
    (tmp_path / "labels.json").write_text('{"intents": 3}', "utf-8")
    with pytest.raises(CorpusError, match=r"labels\.json"):
        LabelSet.load(tmp_path / "labels.json")
