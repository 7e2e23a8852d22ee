"""A caller whose text no model can read is told why."""

from __future__ import annotations

import pytest

from failsoft.serving.intake.sanitizer import Cleanliness, TextPolicy, sanitize


@pytest.mark.parametrize(
    ("text", "policy", "words"),
    [
        ("!?", TextPolicy(), "nothing in the text can be read"),
        ("\u200b", TextPolicy(), "nothing in the text can be read"),
        ("a" * 11, TextPolicy(max_chars=10), "11 characters, no model reads more than 10"),
        ("\ud83d" + "\xe9" * 10, TextPolicy(max_chars=10), "11 characters, no model reads more than 10"),
        ("\xe9" * 10, TextPolicy(max_bytes=19), "more than 19 bytes"),
        ("play " * 4, TextPolicy(max_words=3), "more than 3 words and signs"),
        ("pl\u200bay " * 4, TextPolicy(max_words=3), "more than 3 words and signs"),
    ],
)
def test_what_makes_a_text_hopeless_is_said(text: str, policy: TextPolicy, words: str) -> None:
    """A long text was told that nothing in it could be read."""
    cleaned = sanitize(text, policy)
    assert cleaned.verdict is Cleanliness.HOPELESS
    assert words in cleaned.why
    assert sanitize("play", TextPolicy()).why == ""
