"""What one caller saw of one request, and whether that was the answer the healthy app gives."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_OF_THE_MOMENT = frozenset(
    {"request_id", "latency_ms", "confidence", "source", "degrade_reason", "refused_confidence"}
    | {"release", "stage", "epoch", "gateway"}
)
"""Fields of failsoft's answers that say how an answer came about; what was answered stands in the others."""
_RELATIVE, _ABSOLUTE = 0.01, 1e-6
"""Numbers of the same answer, computed in another batch, differ by less."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One request of the steady traffic. Times are the client's monotonic ones."""

    sent_s: float
    done_s: float
    status: int
    """HTTP status; 0: no answer in the caller's patience, or a broken connection."""
    source: str | None = None
    """Who answered, where answers say it."""
    stage: str | None = None
    epoch: int | None = None
    reason: str = ""
    """Why not the model, in the app's words; of a request without an answer, the client's."""
    right: bool | None = None
    """It is the healthy app's answer; None: that could not be told."""

    @property
    def lost(self) -> bool:
        """No answer that a caller could use."""
        return self.status != 200

    @property
    def turned_away(self) -> bool:
        """Refused at once and in words, for there was too much: not silence, and not an error."""
        return self.status in {429, 503}


class Expectation:
    """What the healthy app answers to each payload: the fields that stayed the same whenever it was asked.

    Args:
        bodies: for each payload the bodies of its healthy answers, as parsed JSON.
    """

    MIN_BODIES = 3
    """Fewer say nothing about which fields stay the same."""

    def __init__(self, bodies: Sequence[Sequence[Any]]) -> None:
        self._stable = [_stable(some) if len(some) >= self.MIN_BODIES else {} for some in bodies]

    @property
    def knows(self) -> int:
        """Payloads whose right answer is known."""
        return sum(bool(one) for one in self._stable)

    def right(self, payload: int, body: Any) -> bool | None:
        """Whether this body says what the healthy app said; None where nothing of that ever stayed the same."""
        stable = self._stable[payload]
        if not stable:
            return None
        said = dict(_leaves(body))
        return all(path in said and _same(value, said[path]) for path, value in stable.items())


def _stable(bodies: Sequence[Any]) -> Mapping[str, Any]:
    first, *others = [dict(_leaves(body)) for body in bodies]
    return {
        path: value
        for path, value in first.items()
        if all(path in other and _same(value, other[path]) for other in others)
    }


def _leaves(body: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value of a JSON body by its place; an empty list or object is a value, too."""
    parts: list[tuple[Any, Any]] = []
    if isinstance(body, dict):
        parts = [(name, part) for name, part in body.items() if name not in _OF_THE_MOMENT]
    elif isinstance(body, list):
        parts = list(enumerate(body))
    if not parts:
        yield path, body
    for name, part in parts:
        yield from _leaves(part, f"{path}/{name}")


def _same(one: Any, other: Any) -> bool:
    """Equal, or numbers so near that only the order of adding up differs; NaN is like nothing."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    if not numbers:
        return type(one) is type(other) and bool(one == other)
    return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
