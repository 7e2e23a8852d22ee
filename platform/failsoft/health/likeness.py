"""How live texts and answers compare with those of a release's validation data, in numbers for people.

It judges nothing (:mod:`failsoft.health.drift` does, over full windows, with a bound on its errors): it shows from the
first answer on what callers send and what the model says to it, beside what was healthy.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Protocol

_WINDOW = 500
_MOVED = 3


class Healthy(Protocol):
    """What a release's validation data looked like; the bundle's baseline is one."""

    @property
    def oov_fraction(self) -> float:
        """Share of all words outside the training vocabulary; NaN: not measured."""
        ...

    @property
    def words_mean(self) -> float | None:
        """Mean number of words of a text; None: not measured."""
        ...

    @property
    def label_mix(self) -> Mapping[str, float]:
        """Share of each predicted label; empty: not measured."""
        ...


_Text = tuple[float, float, str]
"""Words, unknown words, label; NaN and an empty label: unknown."""


class Likeness:
    """The newest texts and answers beside a release's own. O(1) for a record.

    Args:
        healthy: what they are compared with.
        window: so many of the newest.
    """

    def __init__(self, healthy: Healthy, *, window: int = _WINDOW) -> None:
        self._healthy = healthy
        self._newest: deque[_Text] = deque()
        self._window = window
        self._labels: Counter[str] = Counter()
        self._words = self._unknown = 0.0
        self._counted = 0

    def record(self, *, words: float, oov_share: float, label: str) -> None:
        """Take in one text that the model read; NaN and an empty label: unknown, and not counted."""
        if len(self._newest) == self._window:
            self._count(self._newest.popleft(), -1)
        if not (0.0 <= words < math.inf and 0.0 <= oov_share <= 1.0):
            words = oov_share = math.nan
        text = words, words * oov_share, label
        self._newest.append(text)
        self._count(text, 1)

    def clear(self) -> None:
        """Forget all: other weights are watched."""
        self._newest.clear()
        self._labels.clear()
        self._words = self._unknown = 0.0
        self._counted = 0

    def status(self) -> dict[str, Any]:
        """Live and healthy values of each; None: unknown. ``in_words`` says the same for people."""
        labels, mix = self._labels.total(), self._healthy.label_mix
        live = {label: count / labels for label, count in self._labels.items()}
        moves = {label: live.get(label, 0.0) - mix.get(label, 0.0) for label in {*live, *mix}} if labels and mix else {}
        most = sorted(moves, key=lambda label: -abs(moves[label]))[:_MOVED]
        found: dict[str, Any] = {
            "answers": len(self._newest),
            "oov": {"live": _ratio(self._unknown, self._words), "healthy": _known(self._healthy.oov_fraction)},
            "words": {"live": _ratio(self._words, self._counted), "healthy": _known(self._healthy.words_mean)},
            "label_mix": {
                "distance": sum(map(abs, moves.values())) / 2 if moves else None,
                "by_chance": _by_chance(mix, labels) if moves else None,
                "most_moved": {label: {"live": live.get(label, 0.0), "healthy": mix.get(label, 0.0)} for label in most},
            },
        }
        return found | {"in_words": _in_words(found)}

    def _count(self, text: _Text, sign: int) -> None:
        words, unknown, label = text
        if words >= 0.0:  # no NaN
            self._words += sign * words
            self._unknown += sign * unknown
            self._counted += sign
        if label:
            self._labels[label] += sign
            if not self._labels[label]:  # what an own model calls its answers has no bound
                del self._labels[label]


def _by_chance(mix: Mapping[str, float], labels: int) -> float:
    """What the distance of so many answers drawn from the very same mix is on average, at most."""
    return sum(math.sqrt(share * (1.0 - share) / labels) for share in mix.values()) / 2


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0.0 else None


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _in_words(found: Mapping[str, Any]) -> str:
    if not found["answers"]:
        return "no answer yet"
    said = [_beside("unknown words", found["oov"], ".1%"), _beside("words a text", found["words"], ".1f")]
    mix = found["label_mix"]
    if mix["distance"] is None:
        said.append("label mix unknown")
    else:
        moved = ", ".join(
            f"{label} {both['live']:.0%} ({both['healthy']:.0%})" for label, both in mix["most_moved"].items()
        )
        said.append(f"label mix differs by {mix['distance']:.2f}, by chance {mix['by_chance']:.2f}: {moved}")
    return f"{'; '.join(said)}; on {found['answers']} answers"


def _beside(what: str, both: Mapping[str, float | None], form: str) -> str:
    live, healthy = ("unknown" if value is None else format(value, form) for value in (both["live"], both["healthy"]))
    return f"{what} {live} (healthy {healthy})"
