"""From positions in a changed text back to the text it was made from."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

Edit = tuple[int, int, str]
"""``(start, end, made)``: ``text[start:end]`` became ``made``; the same start and end: ``made`` was put in between."""


class Round(Protocol):
    """One change of a text and the way back over it."""

    def start_of(self, position: int) -> int:
        """Where the character at ``position`` begins in the text before; a made one begins where its source does."""
        ...

    def end_of(self, position: int) -> int:
        """Where the text up to ``position`` (above 0) ends in the text before; nothing removed after it is taken in."""
        ...


class Edited:
    """The result of edits to a text, and the way back.

    Args:
        text: the text before.
        edits: in order, not overlapping.
    """

    def __init__(self, text: str, edits: Sequence[Edit]) -> None:
        pieces: list[str] = []
        done = 0
        for start, end, made in edits:
            pieces += (text[done:start], made)
            done = end
        pieces.append(text[done:])
        self.text = "".join(pieces)
        self._edits = edits

    @functools.cached_property
    def _made(self) -> tuple[list[int], list[int]]:
        """Where what each edit made begins and ends in the new text; laid out when first asked for."""
        starts, ends, grown = [], [], 0
        for start, end, made in self._edits:
            starts.append(start + grown)
            grown += len(made) - (end - start)
            ends.append(end + grown)
        return starts, ends

    def start_of(self, position: int) -> int:
        """See :class:`Round`."""
        passed = bisect_right(self._made[1], position)
        if passed < len(self._edits) and self._made[0][passed] <= position:
            return self._edits[passed][0]
        return position + self._shift(passed)

    def end_of(self, position: int) -> int:
        """See :class:`Round`."""
        passed = bisect_right(self._made[1], position - 1)
        if passed < len(self._edits) and self._made[0][passed] < position:
            return self._edits[passed][1]
        return position + self._shift(passed)

    def _shift(self, passed: int) -> int:
        return self._edits[passed - 1][1] - self._made[1][passed - 1] if passed else 0


class Thinned:
    """A text from which some kinds of characters were taken out, and the way back.

    Args:
        text: the text before.
        removed: what was taken out.
    """

    def __init__(self, text: str, removed: frozenset[str]) -> None:
        self._text = text
        self._removed = removed

    @functools.cached_property
    def _kept(self) -> list[int]:
        """Where each character that stayed stood; laid out when first asked for."""
        return [index for index, char in enumerate(self._text) if char not in self._removed]

    def start_of(self, position: int) -> int:
        """See :class:`Round`."""
        return self._kept[position] if position < len(self._kept) else len(self._text)

    def end_of(self, position: int) -> int:
        """See :class:`Round`."""
        return self._kept[position - 1] + 1


class Reworked:
    """Edits that were made already, and are listed when the way back is first asked for.

    Args:
        before: the text before.
        text: the text after.
        edits: lists them, as :class:`Edited` wants them.
    """

    def __init__(self, before: str, text: str, edits: Callable[[], Sequence[Edit]]) -> None:
        self._before = before
        self.text = text
        self._edits = edits

    @property
    def made(self) -> str:
        """The text after, as the edits have it; the same, or they are wrong."""
        return self._edited.text

    @functools.cached_property
    def _edited(self) -> Edited:
        return Edited(self._before, self._edits())

    def start_of(self, position: int) -> int:
        """See :class:`Round`."""
        return self._edited.start_of(position)

    def end_of(self, position: int) -> int:
        """See :class:`Round`."""
        return self._edited.end_of(position)


class OffsetMap:
    """A text that is changed round by round, and the way back over all of them."""

    def __init__(self, original: str) -> None:
        self._rounds: list[Round] = []
        self.text = original
        """The text as it is after the rounds so far."""

    @property
    def rounds(self) -> Sequence[Round]:
        """The changes so far, first to last."""
        return self._rounds

    def apply(self, edits: Sequence[Edit]) -> None:
        """Make some edits: in order, not overlapping."""
        if edits:
            self.follow(Edited(self.text, edits))

    def follow(self, edited: Edited) -> None:
        """Go over to the text of ``edited``, which was made from the present one."""
        self._rounds.append(edited)
        self.text = edited.text

    def thin(self, text: str, removed: frozenset[str]) -> None:
        """Go over to ``text``, the present one without the characters ``removed``; others may be exchanged for one."""
        if len(text) != len(self.text):
            self._rounds.append(Thinned(self.text, removed))
        self.text = text

    def rework(self, text: str, edits: Callable[[], Sequence[Edit]]) -> None:
        """Go over to ``text``, which is the present one after ``edits()``; those are asked for only when needed."""
        if text != self.text:
            self._rounds.append(Reworked(self.text, text, edits))
            self.text = text

    def exchange(self, text: str) -> None:
        """Go over to ``text``, in which each character stands where its source did."""
        if len(text) != len(self.text):
            raise ValueError(f"{len(text)} characters can't stand for {len(self.text)} one by one; use apply")
        self.text = text

    def to_original(self, start: int, end: int) -> tuple[int, int]:
        """The span of the first text that ``text[start:end]`` was made from; clipped into the text, never raises."""
        start = min(max(start, 0), len(self.text))
        end = min(max(end, start), len(self.text))
        first, last = start, end
        for change in reversed(self._rounds):
            first, last = change.start_of(first), change.end_of(last) if last else 0
        return first, max(first, last) if start < end else first
