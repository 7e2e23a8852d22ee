"""The coverage gates on published corpora: what healthy held-out traffic has, and what malformed traffic has."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from failsoft.demo.waves import glued_emoji, odd_unicode, unknown_words
from failsoft.models.corpora import load_corpus
from failsoft.models.corpus import Corpus
from failsoft.models.recipe import recipe_for
from failsoft.models.tokens import TextCodec
from failsoft.release.evidence import spread_out
from failsoft.serving.intake.sanitizer import TextPolicy, sanitize
from tests.release.test_coverage import verdicts

Spoil = Callable[[str, random.Random], str]


@pytest.fixture(scope="module", params=["snips_dir", "clinc_dir"])
def corpus(request: pytest.FixtureRequest) -> Corpus:
    folder: Path = request.getfixturevalue(request.param)
    return load_corpus(folder)


@pytest.fixture(scope="module")
def codec(corpus: Corpus) -> TextCodec:
    return TextCodec.train([utterance.text for utterance in corpus.train], recipe_for(corpus.name).codec)


def texts(corpus: Corpus, split: str) -> list[str]:
    found = getattr(corpus, split)
    return [found[place].text for place in spread_out(len(found))]


def judged(corpus: Corpus, codec: TextCodec, traffic: list[str]) -> dict[str, bool]:
    return verdicts(codec, [sanitize(text, TextPolicy()).text for text in traffic], texts(corpus, "validation"))


def test_the_test_split_passes_also_where_a_fifth_of_it_is_out_of_scope(corpus: Corpus, codec: TextCodec) -> None:
    assert all(judged(corpus, codec, texts(corpus, "test")).values())


def test_two_hundred_texts_are_enough(corpus: Corpus, codec: TextCodec) -> None:
    few = random.Random(3).sample(texts(corpus, "test"), 200)
    assert all(judged(corpus, codec, few).values())


@pytest.mark.parametrize("often", [1, 20])
def test_emoji_traffic_fails_also_where_few_texts_have_one(corpus: Corpus, codec: TextCodec, often: int) -> None:
    spoiled = [f"{text} 😀" if n % often == 0 else text for n, text in enumerate(texts(corpus, "test"))]
    found = judged(corpus, codec, spoiled)
    assert not found["readable"]
    assert not found["recurring"]


@pytest.mark.parametrize("spoil", [glued_emoji, unknown_words])
def test_malformed_traffic_fails_by_what_comes_back_and_by_what_is_unknown(
    corpus: Corpus, codec: TextCodec, spoil: Spoil
) -> None:
    chance = random.Random(3)
    found = judged(corpus, codec, [spoil(text, chance) for text in texts(corpus, "test")])
    assert not found["recurring"]
    assert not found["unknown"]


def test_odd_unicode_fails_where_nobody_cleans_it_and_passes_where_the_sanitizer_does(
    corpus: Corpus, codec: TextCodec
) -> None:
    chance = random.Random(3)
    odd = [odd_unicode(text, chance) for text in texts(corpus, "test")]
    assert all(judged(corpus, codec, odd).values())
    assert not any(verdicts(codec, odd, texts(corpus, "validation")).values())


def test_the_codec_of_another_training_set_is_found_by_the_words_that_come_back(corpus: Corpus) -> None:
    other = TextCodec.train(["please play some rain in town", "tell me the forecast"] * 3)
    assert not judged(corpus, other, texts(corpus, "test"))["recurring"]
