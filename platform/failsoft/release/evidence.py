"""The release's own evaluation texts, with what the model said to them when training ended.

Training records them through its own path (its encoder, its network in memory); the gates ask the same texts again
through the path that serving uses (files, loader, sanitiser). What differs between the two is training-serving skew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.errors import ConfigError, DamagedArtifactError
from failsoft.health.json_object import json_value
from failsoft.models.scores import ScoreBatch
from failsoft.release.spread import Answers, Floats, normalised_entropies

_FORMATS = (1, 2, 3)
"""Format 1 had no word numbers, format 2 no slots."""
Slots = tuple[tuple[str, str], ...]
"""Name and words of each slot that was found in a text."""
MAX_TEXTS = 1000
"""More texts would make a bundle larger and its gates no sharper."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Texts, their true intents, and the recorded answers."""

    texts: tuple[str, ...]
    intents: tuple[str, ...]
    logits_BC: Floats
    temperature: float
    """The calibration in force when they were recorded."""
    ids: tuple[tuple[int, ...], ...] | None = None
    """The word numbers that training made of each text; None in releases that did not record them."""
    slots: tuple[Slots, ...] | None = None
    """What training found in each text; None in releases that did not record it."""

    def __post_init__(self) -> None:
        """Refuse columns of different lengths."""
        columns = (self.intents, self.logits_BC, self.ids, self.slots)
        if any(column is not None and len(column) != len(self.texts) for column in columns):
            raise ConfigError(
                f"{len(self.texts)} texts, {len(self.intents)} intents, {len(self.logits_BC)} answers; one of each"
            )

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def answers(self) -> Answers:
        """What was said to the texts."""
        return answers_of(self.logits_BC, self.temperature)

    def to_json(self) -> str:
        """JSON text for :data:`Role.EVAL_TEXTS`; logits to six significant digits."""
        body = {
            "format": _FORMATS[-1],
            "texts": self.texts,
            "intents": self.intents,
            "logits": [[_short(value) for value in row] for row in self.logits_BC.tolist()],
            "temperature": self.temperature,
            "ids": self.ids,
            "slots": self.slots,
        }
        return json.dumps(body)


def answers_of(logits_BC: NDArray[np.floating], temperature: float) -> Answers:
    """Logits as answers, with the entropies of their calibrated distributions."""
    wide_BC = np.asarray(logits_BC, dtype=np.float64)
    return Answers(logits_BC=wide_BC, entropies_B=normalised_entropies(wide_BC, temperature))


def slots_of(texts: Sequence[str], scores: ScoreBatch) -> tuple[Slots, ...]:
    """What a model found in each text, by name and words; places move where serving cleans a text."""
    rows = zip(texts, scores.spans, strict=True)
    return tuple(tuple((span.slot, text[span.start : span.end]) for span in spans) for text, spans in rows)


def read_evidence(bundle: Bundle) -> Evidence:
    """The evaluation texts of a release.

    Raises:
        DamagedArtifactError: absent, torn, or of another form.
    """
    path = bundle.part(Role.EVAL_TEXTS)
    try:
        return _from_json(path)
    except (ValueError, KeyError, TypeError, ConfigError) as error:
        raise DamagedArtifactError(
            f"{path} holds no evaluation texts ({error!r}); publish the release again"
        ) from error


def spread_out(count: int, at_most: int = MAX_TEXTS) -> list[int]:
    """Places of at most ``at_most`` of ``count`` items, evenly spread, so that no file or intent is left out."""
    return [place * count // min(count, at_most) for place in range(min(count, at_most))]


def _from_json(path: Path) -> Evidence:
    body = json_value(path.read_text("utf-8"))
    if body["format"] not in _FORMATS:
        raise ConfigError(f"format is {body['format']}, this code reads {_FORMATS[0]} to {_FORMATS[-1]}")
    logits_BC = np.array(body["logits"], dtype=np.float64)
    return Evidence(
        texts=tuple(body["texts"]),
        intents=tuple(body["intents"]),
        logits_BC=logits_BC,
        temperature=float(body["temperature"]),
        ids=None if body.get("ids") is None else tuple(tuple(row) for row in body["ids"]),
        slots=None if body.get("slots") is None else tuple(_slots(row) for row in body["slots"]),
    )


def _slots(row: list[list[str]]) -> Slots:
    return tuple((str(slot), str(words)) for slot, words in row)


def _short(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None  # JSON has no NaN; null reads back as NaN
