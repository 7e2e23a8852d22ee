"""How text is cleaned: part of a release, so that a model is served what it was measured with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from failsoft.errors import ConfigError
from failsoft.health.json_object import json_value

_BEFORE: dict[str, Any] = {"fold_look_alikes": False, "mend_mojibake": False, "plain_quotes": False}
MARKS_SORTED = 32
"""Normalisation sorts marks in quadratic time; no writing system stacks so many (UAX #15 allows 30)."""


NormalForm = Literal["NFC", "NFKC"]
"""How characters that mean the same are made the same (UAX #15). NFC merges accents with their letters, and what is
seen does not change; NFKC also makes full-width, mathematical and other dressed-up letters plain."""


@dataclass(frozen=True, kw_only=True)
class TextPolicy:
    """What is cleaned away, and what is too much."""

    form: NormalForm = "NFKC"
    """Unicode normal form that texts are brought to."""
    max_expansion: int = 6
    """A character that NFKC would blow up to more is kept as it is: U+FDFA becomes 18, the longest unit signs 6."""
    max_marks: int = 4
    """Combining marks kept in a row; Vietnamese and Hebrew need 3."""
    split_emoji: bool = True
    """Set emoji apart from the words that they are glued to."""
    fold_look_alikes: bool = True
    """Make Latin letters of Cyrillic, Greek, Armenian and small capital ones that stand in for them."""
    mend_mojibake: bool = True
    """Undo UTF-8 that was read as Latin-1 or Windows-1252."""
    plain_quotes: bool = True
    """Take away the curly and angle quotation marks that phones and programs set around words, and make apostrophes
    plain. They say nothing that the words do not, and a model that has not met them in training trips over them."""
    max_chars: int = 8_000
    """Longer texts are hopeless, before and after cleaning."""
    max_bytes: int = 32_000
    """The same for the cleaned text in UTF-8."""
    max_words: int = 512
    """The same for tokens: words and punctuation marks. A model reads no further."""

    def __post_init__(self) -> None:
        """Refuse limits under which no text passes."""
        if self.form not in get_args(NormalForm):
            raise ConfigError(f"form is {self.form!r}; use NFC or NFKC")
        for name in ("max_expansion", "max_chars", "max_bytes", "max_words"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use at least 1")
        if not 0 <= self.max_marks <= MARKS_SORTED:
            raise ConfigError(f"max_marks is {self.max_marks}; use 0 to {MARKS_SORTED}, 4 suits most languages")

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back."""
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> TextPolicy:
        """Read a policy. One that was written before a repair existed means without it.

        Raises:
            ConfigError: not a JSON object, a field is unknown, of another type, or impossible.
        """
        try:
            content = dict(json_value(text))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"not a text policy: {error}; write one with TextPolicy().to_json()") from error
        types = {known.name: type(known.default) for known in fields(cls)}
        for name, value in content.items():
            if type(value) is not types.get(name):
                raise ConfigError(f"text policy has {name} = {value!r}; known fields and types: {_in_words(types)}")
        return cls(**(_BEFORE | content))


def _in_words(types: Mapping[str, type]) -> str:
    return ", ".join(f"{name} ({kind.__name__})" for name, kind in types.items())
