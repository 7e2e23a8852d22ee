"""Words that others wrote, made fit to be shown: on a terminal, which obeys some signs, and on a page."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text with its code for each sign that would not show, turns the text around, or is half a character."""
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in text)
