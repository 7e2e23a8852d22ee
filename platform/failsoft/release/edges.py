"""Edge cases for the gates: what real traffic holds now and then, and where narrow weights show first."""

from __future__ import annotations

EDGE_CASES: tuple[str, ...] = (
    "",
    " ",
    ".",
    "?!?!",
    "a",
    "ok",
    "HELLO",
    "no",
    "0",
    "42",
    "3.14159",
    "1,000,000",
    "the the the the the the",
    "play",
    "weather",
    "book",
    "what",
    "play play weather book rate find",
    "book a table and play some music and tell me the weather",
    "not really sure what i want",
    "colourless green ideas sleep furiously",
    "zxqv blorf wuggle",
    "wordwithoutanyspacesthatgoesonandonandonandonandonandon",
    "e" * 200,
    "very " * 60 + "long",
    "naïve café in Zürich",
    "Ελληνικά",
    "русский текст",
    "日本語のテキスト",
    "हिन्दी",
    "العربية",
    "😀",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7 1\ufe0f\u20e3",  # joined emoji, flag, keycap
    "play🔥some❤️music",
    "\uff50\uff4c\uff41\uff59 \uff4d\uff55\uff53\uff49\uff43",  # full-width letters
    "\u200bplay\u200d \ufeffmusic",
    "a\u0301\u0301\u0301\u0301",
    "it's 5 o'clock @ the bar #fun $5 50% off",
    "http://example.com/?q=1&r=2",
    "{'json': [1, 2, 3]}",
    "SELECT * FROM songs;",
)
"""Texts as a caller may send them; they are cleaned as serving cleans before the model sees them."""
