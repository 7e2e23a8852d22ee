from __future__ import annotations

import math
import random

import pytest

from failsoft.demo.waves import glued_emoji, odd_unicode, unknown_words
from failsoft.models.tokens import TextCodec
from failsoft.release.coverage import compare_types, coverage_of
from failsoft.release.gates import judge_readable, judge_traffic_types
from failsoft.release.policy import GatePolicy
from failsoft.release.spread import Bootstrap
from tests.release.conftest import Trained, sentences

POLICY = GatePolicy()


@pytest.fixture(scope="module")
def codec(trained: Trained) -> TextCodec:
    return trained.codec


@pytest.fixture(scope="module")
def own(trained: Trained) -> list[str]:
    return [utterance.text for utterance in trained.corpus.validation]


def test_a_new_word_in_known_letters_is_readable_and_not_known(codec: TextCodec) -> None:
    coverage = coverage_of(codec, ["please find nodes"])
    assert (coverage.words, coverage.readable_fraction) == (3, 1.0)
    assert coverage.known_fraction == pytest.approx(2 / 3)


def test_every_use_of_an_unreadable_character_counts(codec: TextCodec) -> None:
    coverage = coverage_of(codec, ["tell 😀 me 😀", "😀"])
    assert coverage.words == 5
    assert coverage.readable_fraction == pytest.approx(2 / 5)


def test_texts_without_words_are_counted_apart(codec: TextCodec) -> None:
    coverage = coverage_of(codec, ["", " ", "rain"])
    assert (coverage.texts, coverage.words, coverage.empty_texts) == (3, 1, 2)


def test_no_words_at_all_are_no_coverage(codec: TextCodec) -> None:
    assert math.isnan(coverage_of(codec, [""]).readable_fraction)
    assert not judge_readable(coverage_of(codec, [""] * 500), POLICY, of="traffic").passed


def test_clean_held_out_texts_pass(codec: TextCodec, own: list[str]) -> None:
    fresh = [utterance.text for utterance in sentences(200, 9)]
    assert judge_readable(coverage_of(codec, fresh), POLICY, of="traffic").passed
    assert judge_traffic_types(compare_types(codec, fresh, own, Bootstrap()), POLICY).passed


def test_emoji_traffic_fails(codec: TextCodec, own: list[str]) -> None:
    chance = random.Random(3)
    split = [glued_emoji(text, chance).replace("😀", " 😀 ") for text in own]
    assert not judge_readable(coverage_of(codec, split), POLICY, of="traffic").passed


def test_one_emoji_in_fifty_words_fails(codec: TextCodec, own: list[str]) -> None:
    spoiled = [f"{text} 😀" if number % 10 == 0 else text for number, text in enumerate(own)]
    assert not judge_readable(coverage_of(codec, spoiled), POLICY, of="traffic").passed


def test_odd_unicode_that_nobody_cleaned_fails(codec: TextCodec, own: list[str]) -> None:
    chance = random.Random(3)
    odd = [odd_unicode(text, chance) for text in own]
    assert not judge_readable(coverage_of(codec, odd), POLICY, of="traffic").passed


def test_invented_words_are_readable_and_fail_by_their_types(codec: TextCodec, own: list[str]) -> None:
    chance = random.Random(3)
    invented = [unknown_words(text, chance) for text in own]
    assert not judge_traffic_types(compare_types(codec, invented, own, Bootstrap()), POLICY).passed


def test_more_texts_of_the_same_kind_have_about_as_many_known_types(codec: TextCodec, own: list[str]) -> None:
    twice = compare_types(codec, own * 2, own, Bootstrap())
    assert twice.low <= 1.0 <= twice.high
    assert twice.texts == len(own)


def test_nothing_is_compared_with_nothing(codec: TextCodec, own: list[str]) -> None:
    assert math.isnan(compare_types(codec, [], own, Bootstrap()).value)
    assert not judge_traffic_types(compare_types(codec, [], own, Bootstrap()), POLICY).passed


def test_too_few_texts_decide_nothing(codec: TextCodec, own: list[str]) -> None:
    few = judge_readable(coverage_of(codec, own[:20]), POLICY, of="traffic")
    assert not few.passed
    assert "give at least 100" in few.why
