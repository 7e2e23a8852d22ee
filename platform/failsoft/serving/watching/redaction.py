"""What an instance may keep when it is written down: no field that was named, nothing that a pattern finds."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HIDDEN = "▮"
MOST_CHARACTERS = 2000
"""Of an instance as JSON; a larger one is not kept, since half of one can't be tried again."""
_MOST_LEAVES, _DEEPEST = 500, 20


class _TooLargeError(Exception):
    """Only within this file."""


@dataclass
class _Seen:
    """How much of an instance was looked at."""

    leaves: int = 0
    characters: int = 0
    """In its texts."""


class Redaction:
    """Hides.

    Args:
        fields: names of fields whose values are hidden, at whatever depth.
        patterns: of what is hidden within texts; a whole number that one of them finds is hidden altogether. Numbers
            with a fraction stay: they measure something, and each of them has many digits.
    """

    def __init__(self, fields: Collection[str], patterns: Sequence[re.Pattern[str]]) -> None:
        self._fields, self._patterns = frozenset(fields), patterns

    def text(self, text: str) -> str:
        """Without what the patterns find."""
        for pattern in self._patterns:
            text = pattern.sub(HIDDEN, text)
        return text

    def without_fields(self, value: Any, depth: int = _DEEPEST) -> Any:
        """The same with named fields hidden, and whatever lies deeper than anybody reads."""
        if not self._fields or not isinstance(value, Mapping | list | tuple):
            return value
        if depth == 0:
            return HIDDEN
        if isinstance(value, Mapping):
            return {
                name: HIDDEN if str(name) in self._fields else self.without_fields(inner, depth - 1)
                for name, inner in value.items()
            }
        return [self.without_fields(inner, depth - 1) for inner in value]

    def as_json(self, value: Any) -> str | None:
        """An instance that ``failsoft replay`` can try again; None: it is too large, or no JSON."""
        try:
            written = json.dumps(self._plain(self.without_fields(value), _Seen(), _DEEPEST), allow_nan=True)
        except _TooLargeError:
            return None
        return written if len(written) <= MOST_CHARACTERS else None

    def _plain(self, value: Any, seen: _Seen, depth: int) -> Any:
        seen.leaves += 1
        seen.characters += len(value) if isinstance(value, str) else 0  # before any pattern is tried on it
        if seen.leaves > _MOST_LEAVES or seen.characters > MOST_CHARACTERS or depth == 0:
            raise _TooLargeError
        if isinstance(value, Mapping):
            return {str(name): self._plain(inner, seen, depth - 1) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(inner, seen, depth - 1) for inner in value]
        return self._leaf(value)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value.encode("utf-8", "replace").decode("utf-8"))
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            return HIDDEN if any(pattern.search(str(value)) for pattern in self._patterns) else value
        raise _TooLargeError
