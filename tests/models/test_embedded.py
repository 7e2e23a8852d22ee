"""The corpus that is made up."""

from __future__ import annotations

from collections import Counter

import pytest

from failsoft.errors import ConfigError
from failsoft.models.embedded import Sizes, embedded_corpus, recased
from failsoft.models.splits import normalised

CORPUS = embedded_corpus(seed=3, sizes=Sizes(train=1500, validation=200, test=200))


def test_the_same_seed_says_the_same_and_another_does_not() -> None:
    sizes = Sizes(train=200, validation=50, test=50)
    assert embedded_corpus(seed=1, sizes=sizes) == embedded_corpus(seed=1, sizes=sizes)
    assert embedded_corpus(seed=1, sizes=sizes) != embedded_corpus(seed=2, sizes=sizes)


def test_it_is_as_rich_as_promised() -> None:
    assert len(CORPUS.intents) >= 8
    assert len(CORPUS.slots) >= 12
    assert (len(CORPUS.train), len(CORPUS.validation), len(CORPUS.test)) == (1500, 200, 200)
    assert set(Counter(sample.intent for sample in CORPUS.test).values()) == {20}


def test_no_text_is_said_twice() -> None:
    every = [normalised(u.text) for u in (*CORPUS.train, *CORPUS.validation, *CORPUS.test)]
    assert len(set(every)) == len(every)


def test_every_span_holds_a_value_without_blanks_around_it_and_none_overlap() -> None:
    for sample in CORPUS.train:
        end = 0
        for span in sample.spans:
            assert end <= span.start < span.end <= len(sample.text)
            value = sample.text[span.start : span.end]
            assert value == value.strip()
            end = span.end


def test_it_has_the_noise_of_real_typing() -> None:
    texts = [sample.text for sample in CORPUS.train]
    assert any(text.isupper() for text in texts)
    assert any(text.endswith("?") for text in texts)
    assert any(text.startswith("um ") for text in texts)
    words = Counter(word for text in texts for word in text.lower().split())
    assert sum(count == 1 for count in words.values()) > 200


def test_a_case_that_changes_the_length_leaves_the_text_alone() -> None:
    pieces = [("stra\u00dfe ", None), ("berlin", "city")]
    assert recased(pieces, str.upper) == pieces
    assert recased(pieces, str.title) == [("Stra\u00dfe ", None), ("Berlin", "city")]


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="test is 0"):
        Sizes(test=0)
