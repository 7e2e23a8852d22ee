"""Who answered around an incident, as the gateways wrote it down. A line that is torn is passed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failsoft.health.json_object import is_count, is_finite, json_object
from failsoft.health.ledger_files import all_lines

VERSION = 1
MODELS = frozenset({"primary", "canary", "previous"})
NONE = "none"
_TENTHS = 10


@dataclass(frozen=True, kw_only=True)
class Span:
    """What one gateway did in one span of time."""

    at_s: float
    """Wall time of its end."""
    span_s: float
    gateway: str
    stage: str
    release: str
    """The plan's subject."""
    answers: Mapping[tuple[str, str], int]
    """(source, why not the model in service) → how many."""
    confidence: tuple[int, ...]
    """Of the models' answers, how many in each tenth from 0 to 1."""
    slowest_ms: float
    specimens: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Spans taken together."""

    sources: Mapping[str, int]
    whys: Mapping[str, int]
    confidence: tuple[int, ...]
    slowest_ms: float

    @property
    def answers(self) -> int:
        """All of them."""
        return sum(self.sources.values())

    @property
    def replaced(self) -> int:
        """How many were not the model's in service: what users may have noticed."""
        return sum(count for why, count in self.whys.items() if why != NONE)

    @property
    def sure(self) -> float | None:
        """Share of the models' answers with a confidence of 0.9 and more; None without any."""
        counted = sum(self.confidence)
        return self.confidence[-1] / counted if counted else None


def read_spans(path: Path, *, after_s: float, before_s: float) -> list[Span]:
    """Those that ended within these wall times, in order of time."""
    return spans_of_each(path, [(after_s, before_s)])[0]


def spans_of_each(path: Path, times: Sequence[tuple[float, float]]) -> list[list[Span]]:
    """The same for several pieces of time, read once for all of them: a week's history takes seconds."""
    found: list[list[Span]] = [[] for _ in times]
    for span in map(_span, all_lines(path)):
        if span is not None:
            for spans, (after_s, before_s) in zip(found, times, strict=True):
                if after_s <= span.at_s <= before_s:
                    spans.append(span)
    return [sorted(spans, key=lambda span: span.at_s) for spans in found]


def totals(spans: Iterable[Span]) -> Totals:
    """Sums, and the slowest."""
    sources, whys, tenths, slowest_ms = Counter[str](), Counter[str](), [0] * _TENTHS, 0.0
    for span in spans:
        for (source, why), count in span.answers.items():
            sources[source] += count
            whys[why] += count
        tenths = [a + b for a, b in zip(tenths, span.confidence, strict=True)]
        slowest_ms = max(slowest_ms, span.slowest_ms)
    return Totals(sources=dict(sources), whys=dict(whys), confidence=tuple(tenths), slowest_ms=slowest_ms)


def _span(line: bytes) -> Span | None:
    body = json_object(line)
    if body is None or body.get("v") != VERSION:
        return None
    try:
        return Span(
            at_s=_number(body["at_s"]),
            span_s=_number(body["span_s"]),
            gateway=str(body["gateway"]),
            stage=str(body["stage"]),
            release=str(body.get("release", "")),
            answers={
                (str(source), str(why)): _count(n)
                for source, whys in body["answers"].items()
                for why, n in whys.items()
            },
            confidence=_tenths(body["confidence"]),
            slowest_ms=_number(body["slowest_ms"]),
            specimens=tuple({str(key): str(value) for key, value in one.items()} for one in body["specimens"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _number(value: Any) -> float:
    if not is_finite(value):
        raise ValueError
    return float(value)


def _count(value: Any) -> int:
    if not is_count(value):
        raise ValueError
    return value


def _tenths(value: Any) -> tuple[int, ...]:
    if len(value) != _TENTHS:
        raise ValueError
    return tuple(map(_count, value))
