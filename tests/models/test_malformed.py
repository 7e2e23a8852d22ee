"""Malformed text: always the same from a seed, and every answer to it finds its way back to the text before."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.models.corpus import Span
from failsoft.models.malformed import Kind, malformed

TEXT = "add this song by Too Poetic to my Piano Ballads playlist"
kinds = st.sampled_from(list(Kind))


@pytest.mark.parametrize("kind", Kind)
def test_the_same_seed_makes_the_same_text(kind: Kind) -> None:
    first, second = (malformed(TEXT, kind, random.Random(4)) for _ in range(2))
    assert first == second
    assert first.text not in {TEXT, malformed(TEXT, kind, random.Random(5)).text}


@pytest.mark.parametrize("kind", Kind)
def test_a_rate_of_none_leaves_the_text_alone(kind: Kind) -> None:
    assert malformed(TEXT, kind, random.Random(4), rate=0.0).text == TEXT


@pytest.mark.parametrize("kind", Kind)
def test_most_words_are_hit(kind: Kind) -> None:
    chance = random.Random(4)
    kept = sum(len({*malformed(TEXT, kind, chance).text.split(" ")} & {*TEXT.split(" ")}) for _ in range(50))
    assert kept / (50 * len(TEXT.split(" "))) < 0.5


@given(st.text(max_size=30), kinds, st.integers(0, 99))
def test_places_never_go_back_and_cover_the_whole_source(text: str, kind: Kind, seed: int) -> None:
    made = malformed(text, kind, random.Random(seed))
    assert len(made.origins) == len(made.text)
    assert all(before <= after for before, after in pairwise(made.origins))
    if text:
        assert made.to_source(Span(0, len(made.text), "all")) == Span(0, len(text), "all")


def test_what_was_glued_on_is_no_part_of_a_span() -> None:
    made = malformed("jazz", Kind.GLUED_EMOJI, random.Random(1), rate=1.0)
    assert made.text != "jazz"
    assert made.to_source(Span(0, len(made.text), "genre")) == Span(0, 4, "genre")


def test_a_span_of_nothing_but_additions_is_a_span_of_nothing() -> None:
    made = malformed("jazz", Kind.CONTROLS, random.Random(6), rate=1.0)
    added = next(n for n, (start, end) in enumerate(made.origins) if start == end)
    assert made.to_source(Span(added, added + 1, "genre")) == Span(0, 0, "genre")
