"""From positions in a changed text back to the text it was made from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Edit(NamedTuple):
    """``text[start:end]`` became ``made``; the same start and end: ``made`` was put in between."""

    start: int
    end: int
    made: str


class Edited:
    """The result of edits to a text, and the way back.

    Args:
        text: the text before.
        edits: in order, not overlapping.
    """

    def __init__(self, text: str, edits: Iterable[Edit]) -> None:
        pieces: list[str] = []
        done = out = 0
        self._edit_starts: list[int] = []
        self._edit_ends: list[int] = []
        self._sources: list[tuple[int, int]] = []
        for start, end, made in edits:
            pieces += (text[done:start], made)
            out += start - done
            self._edit_starts.append(out)
            out += len(made)
            self._edit_ends.append(out)
            self._sources.append((start, end))
            done = end
        pieces.append(text[done:])
        self.text = "".join(pieces)

    @property
    def changed(self) -> bool:
        """Whether there was any edit."""
        return bool(self._sources)

    def start_of(self, position: int) -> int:
        """Where the character at ``position`` begins in the text before; a made one begins where its source does."""
        passed = bisect_right(self._edit_ends, position)
        if passed < len(self._sources) and self._edit_starts[passed] <= position:
            return self._sources[passed][0]
        return position + self._shift(passed)

    def end_of(self, position: int) -> int:
        """Where the text up to ``position`` ends in the text before; nothing removed after it is taken in."""
        if position <= 0:
            return 0
        passed = bisect_right(self._edit_ends, position - 1)
        if passed < len(self._sources) and self._edit_starts[passed] < position:
            return self._sources[passed][1]
        return position + self._shift(passed)

    def _shift(self, passed: int) -> int:
        return self._sources[passed - 1][1] - self._edit_ends[passed - 1] if passed else 0


class OffsetMap:
    """The way back over several rounds of edits."""

    def __init__(self, original: str) -> None:
        self._length = len(original)
        self._rounds: list[Edited] = []
        self.text = original

    def apply(self, edits: Iterable[Edit]) -> bool:
        """Edit the text once more; True when that changed it."""
        edited = Edited(self.text, edits)
        if edited.changed:
            self._rounds.append(edited)
            self.text = edited.text
        return edited.changed

    def to_original(self, start: int, end: int) -> tuple[int, int]:
        """The span of the original text that ``text[start:end]`` was made from; clipped into the text, never raises."""
        start = min(max(start, 0), len(self.text))
        end = min(max(end, start), len(self.text))
        first = min(self._back(start, Edited.start_of), self._length)
        if start == end:
            return first, first
        return first, min(max(first, self._back(end, Edited.end_of)), self._length)

    def _back(self, position: int, step: Callable[[Edited, int], int]) -> int:
        for edited in reversed(self._rounds):
            position = step(edited, position)
        return position
