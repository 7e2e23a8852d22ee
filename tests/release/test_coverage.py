from __future__ import annotations

import math
import random

import pytest

from failsoft.demo.waves import glued_emoji, odd_unicode
from failsoft.models.tokens import TextCodec
from failsoft.release.coverage import coverage_of, recurring_of, unknown_rise
from failsoft.release.coverage_gates import judge_readable, judge_recurring, judge_rise
from failsoft.release.policy import GatePolicy
from failsoft.release.spread import Bootstrap
from tests.release.conftest import Trained, sentences

POLICY = GatePolicy()
BOOTSTRAP = Bootstrap(rounds=200)


@pytest.fixture(scope="module")
def codec(trained: Trained) -> TextCodec:
    return trained.codec


@pytest.fixture(scope="module")
def own(trained: Trained) -> list[str]:
    return [utterance.text for utterance in trained.corpus.validation]


def test_a_new_word_in_known_letters_is_readable_and_not_known(codec: TextCodec) -> None:
    coverage = coverage_of(codec, ["please find nodes"], BOOTSTRAP)
    assert (coverage.words, coverage.readable_fraction) == (3, 1.0)
    assert coverage.known_fraction == pytest.approx(2 / 3)


def test_every_use_of_an_unreadable_character_counts(codec: TextCodec) -> None:
    coverage = coverage_of(codec, ["tell 😀 me 😀", "😀"], BOOTSTRAP)
    assert coverage.words == 5
    assert coverage.readable_fraction == pytest.approx(2 / 5)


def test_texts_without_words_are_counted_apart(codec: TextCodec) -> None:
    coverage = coverage_of(codec, ["", " ", "rain"], BOOTSTRAP)
    assert (coverage.texts, coverage.words, coverage.empty_texts) == (3, 1, 2)


def test_no_words_at_all_are_no_coverage(codec: TextCodec) -> None:
    assert math.isnan(coverage_of(codec, [""], BOOTSTRAP).readable_fraction)
    assert not judge_readable(coverage_of(codec, [""] * 500, BOOTSTRAP), POLICY, of="traffic").passed


def verdicts(codec: TextCodec, traffic: list[str], own: list[str]) -> dict[str, bool]:
    coverage, rise = coverage_of(codec, traffic, BOOTSTRAP), unknown_rise(codec, traffic, own, BOOTSTRAP)
    recurring, texts = recurring_of(codec, traffic, BOOTSTRAP), coverage.different_texts
    return {
        "readable": judge_readable(coverage, POLICY, of="traffic").passed,
        "recurring": judge_recurring(recurring, texts, POLICY, of="traffic").passed,
        "unknown": judge_rise(rise, texts, POLICY).passed,
    }


def test_clean_held_out_texts_pass(codec: TextCodec, own: list[str]) -> None:
    fresh = [utterance.text for utterance in sentences(250, 9)]
    assert all(verdicts(codec, fresh, own).values())


def test_emoji_traffic_fails(codec: TextCodec, own: list[str]) -> None:
    chance = random.Random(3)
    split = [glued_emoji(text, chance).replace("😀", " 😀 ") for text in own]
    assert not judge_readable(coverage_of(codec, split, BOOTSTRAP), POLICY, of="traffic").passed


def test_one_emoji_in_fifty_words_fails(codec: TextCodec, own: list[str]) -> None:
    spoiled = [f"{text} 😀" if number % 10 == 0 else text for number, text in enumerate(own)]
    assert not judge_readable(coverage_of(codec, spoiled, BOOTSTRAP), POLICY, of="traffic").passed


def test_odd_unicode_that_nobody_cleaned_fails(codec: TextCodec, own: list[str]) -> None:
    chance = random.Random(3)
    odd = [odd_unicode(text, chance) for text in own]
    assert not judge_readable(coverage_of(codec, odd, BOOTSTRAP), POLICY, of="traffic").passed


def test_invented_words_are_readable_and_fail_as_unknown(codec: TextCodec, own: list[str]) -> None:
    chance = random.Random(3)
    invented = [" ".join(chance.sample("abcdefghilmnoprstuwy", 9)) for _ in own]  # each letter a word, all known
    assert coverage_of(codec, ["".join(text.split()) for text in invented], BOOTSTRAP).readable_fraction == 1.0
    mixed = [f"{text} {word.replace(' ', '')}" for text, word in zip(own, invented, strict=True)]
    assert verdicts(codec, mixed, own) == {"readable": True, "recurring": True, "unknown": False}


def test_one_unknown_word_that_comes_back_in_each_twentieth_text_fails_and_is_named(
    codec: TextCodec, own: list[str]
) -> None:
    spoiled = [f"{text} podcast" if number % 20 == 0 else text for number, text in enumerate(own)]
    found = judge_recurring(recurring_of(codec, spoiled, BOOTSTRAP), len(own), POLICY, of="traffic")
    assert not found.passed
    assert "'podcast'" in found.why


def test_a_tokenizer_that_does_not_fold_letters_as_training_did_fails(codec: TextCodec, own: list[str]) -> None:
    other = TextCodec.train([text.upper() for text in own], codec.config)
    other.tokenizer.normalizer = None
    shouted = [f"{text.upper()}\u2019" for text in own]  # not plain ASCII: read by the tokenizer
    assert not judge_recurring(recurring_of(other, shouted, BOOTSTRAP), len(own), POLICY, of="traffic").passed


def test_uses_too_few_to_show_99_5_percent_decide_nothing(codec: TextCodec, own: list[str]) -> None:
    few = recurring_of(codec, own[:100], BOOTSTRAP)
    assert few.value == 1.0
    found = judge_recurring(few, 100, POLICY, of="traffic")
    assert not found.passed
    assert "undecided, which fails: give more texts" in found.why


def test_words_of_which_none_comes_back_are_no_evidence(codec: TextCodec) -> None:
    found = recurring_of(codec, ["rain", "storm", "sun"], BOOTSTRAP)
    assert (found.types, found.uses) == (0, 0)
    assert not judge_recurring(found, 500, POLICY, of="traffic").passed


@pytest.mark.parametrize("own_is_empty", [True, False])
def test_nothing_is_compared_with_nothing(codec: TextCodec, own: list[str], own_is_empty: bool) -> None:
    sides = (own, []) if own_is_empty else ([], own)
    assert not judge_rise(unknown_rise(codec, *sides, BOOTSTRAP), 500, POLICY).passed


def test_too_few_texts_decide_nothing(codec: TextCodec, own: list[str]) -> None:
    few = judge_readable(coverage_of(codec, own[:20], BOOTSTRAP), POLICY, of="traffic")
    assert not few.passed
    assert "give at least 100" in few.why
