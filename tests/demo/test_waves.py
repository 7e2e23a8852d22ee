"""The malformed traffic is really malformed, and the same for the same seed."""

from __future__ import annotations

import random

import pytest

from failsoft.demo.waves import WAVES, glued_emoji, odd_unicode, unknown_words

TEXT = "please play the latest song by daft punk on the kitchen speaker"


@pytest.mark.parametrize("name", sorted(WAVES))
def test_a_wave_changes_the_text_and_is_the_same_for_the_same_seed(name: str) -> None:
    first, second = (WAVES[name](TEXT, random.Random(7)) for _ in range(2))
    assert first == second != TEXT


def test_glued_emoji_keep_every_word_in_place() -> None:
    dirty = glued_emoji(TEXT, random.Random(0)).split(" ")
    assert all(word.startswith(plain) for word, plain in zip(dirty, TEXT.split(" "), strict=True))


def test_odd_unicode_leaves_few_plain_words() -> None:
    dirty = odd_unicode(TEXT, random.Random(0)).split(" ")
    assert sum(word in TEXT.split(" ") for word in dirty) < len(dirty) / 2


def test_unknown_words_are_plain_ascii_and_new() -> None:
    dirty = unknown_words(TEXT, random.Random(0))
    assert dirty.isascii()
    assert set(dirty.split(" ")) - set(TEXT.split(" "))
