"""The embedded corpus: what people say to an assistant, made up from a grammar with the noise of real typing.

Deterministic from a seed, nothing is downloaded. The three splits share no text, but they share the grammar, so quality
on it says that the machinery learns, not that the model understands English.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from failsoft.errors import ConfigError
from failsoft.models.corpus import Corpus, Repairs, Span, Utterance
from failsoft.models.embedded_grammar import CLOSINGS, INTENTS, OPENINGS, PARTS, SYLLABLES
from failsoft.models.splits import assemble, normalised

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_REFERENCE = re.compile(r"<(\w+)>")
_SLOT = re.compile(r"\{(\w+)\}")
_PATIENCE = 200
"""Tries in a row that may give nothing new before the grammar counts as used up."""

Piece = tuple[str, str | None]
"""Text and its slot, if any."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Samples of each split."""

    train: int = 6000
    validation: int = 800
    test: int = 800

    def __post_init__(self) -> None:
        """Refuse splits that hold nothing, or more than the grammar can say."""
        for name in ("train", "validation", "test"):
            if not len(INTENTS) <= getattr(self, name) <= 100_000:
                raise ConfigError(f"{name} is {getattr(self, name)}; use {len(INTENTS)} (one per intent) to 100000")


def embedded_corpus(*, seed: int = 0, sizes: Sizes | None = None) -> Corpus:
    """Make the corpus; about a second per 10,000 samples.

    Raises:
        ConfigError: the sizes ask for more different texts than the grammar holds.
    """
    sizes = sizes or Sizes()
    maker = _Maker(random.Random(seed))
    test = maker.split("test", sizes.test)
    validation = maker.split("validation", sizes.validation)
    train = maker.split("train", sizes.train)
    return assemble("embedded", (train, validation, test), Repairs())


class _Maker:
    """Makes texts that it has not made before."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._said: set[str] = set()
        self._names = ["".join(rng.choices(SYLLABLES, k=rng.choice((2, 2, 3)))) for _ in range(900)]

    def split(self, name: str, size: int) -> list[Utterance]:
        """A split with its intents in turn, so that each has the same share."""
        intents = list(INTENTS)
        return [self._new(intents[place % len(intents)], f"embedded/{name}#{place}") for place in range(size)]

    def _new(self, intent: str, name: str) -> Utterance:
        for _ in range(_PATIENCE):
            text, spans = joined(self._noisy(self._pieces(self._rng.choice(INTENTS[intent]))))
            if (said := normalised(text)) not in self._said:
                self._said.add(said)
                return Utterance(id=name, text=text, intent=intent, spans=spans, source="embedded")
        raise ConfigError(f"the grammar has nothing new to say for {intent} at {name}; ask for a smaller corpus")

    def _pieces(self, template: str) -> list[Piece]:
        """Plain text and slot values in turn."""
        chosen = self._choose(template)
        parts = _SLOT.split(" ".join(chosen.split()))  # plain, slot, plain, slot, ..., plain
        pieces: list[Piece] = [(parts[0], None)]
        for slot, plain in zip(parts[1::2], parts[2::2], strict=True):
            pieces += [(self._expand(slot), slot), (plain, None)]
        return pieces

    def _choose(self, template: str) -> str:
        while match := _CHOICE.search(template):
            option = self._rng.choice(match.group(1).split("|"))
            template = template[: match.start()] + option + template[match.end() :]
        return template

    def _expand(self, part: str) -> str:
        if part == "invented":
            return self._names[min(int(self._rng.expovariate(1 / 220)), len(self._names) - 1)]
        text = self._choose(self._rng.choice(PARTS[part]))
        text = _REFERENCE.sub(lambda match: self._expand(match.group(1)), text)
        return " ".join(text.split())

    def _noisy(self, pieces: list[Piece]) -> list[Piece]:
        rng = self._rng
        if rng.random() < 0.18:
            pieces = [(rng.choice(OPENINGS), None), *pieces]
        if rng.random() < 0.12:
            pieces = [*pieces, (rng.choice(CLOSINGS), None)]
        if rng.random() < 0.25:
            pieces = [*pieces, (rng.choice((".", "?", "!", "...", " ?")), None)]
        typo_chance = rng.choice((0.0, 0.0, 0.0, 0.05, 0.25))
        casing = rng.choices((str, _sentence, str.title, str.upper), weights=(60, 25, 10, 5))[0]
        mistyped = [(self._mistyped(text, typo_chance), slot) for text, slot in pieces]
        return recased(mistyped, casing)

    def _mistyped(self, text: str, chance: float) -> str:
        return "".join(self._typo(word) if self._rng.random() < chance else word for word in re.split(r"(\s+)", text))

    def _typo(self, word: str) -> str:
        if len(word) < 4 or not word.isalpha():
            return word
        at = self._rng.randrange(1, len(word) - 1)
        kind = self._rng.randrange(4)
        if kind == 0:
            return word[:at] + word[at + 1 :]
        if kind == 1:
            return word[:at] + word[at] + word[at:]
        if kind == 2:
            return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        return word[:at] + self._rng.choice("aeiorstln") + word[at + 1 :]


def recased(pieces: list[Piece], casing: Callable[[str], str]) -> list[Piece]:
    """The same pieces in another case; pieces whose length would change (as of ``ß``) stay as they are."""
    whole = casing("".join(text for text, _ in pieces))
    out: list[Piece] = []
    at = 0
    for text, slot in pieces:
        out.append((whole[at : at + len(text)], slot))
        at += len(text)
    return out if at == len(whole) else pieces


def joined(pieces: list[Piece]) -> tuple[str, tuple[Span, ...]]:
    """The text of all pieces with single blanks, and the spans of the slots in it."""
    text, spans = "", []
    for words, slot in pieces:
        added = words.lstrip() if not text or text.endswith(" ") else words
        if slot is not None and added:
            spans.append(Span(len(text), len(text) + len(added), slot))
        text += added
    return text.rstrip(), tuple(spans)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
