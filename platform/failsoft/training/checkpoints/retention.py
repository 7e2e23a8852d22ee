"""Which checkpoints stay. Pure: manifests in, names out; nothing is read or removed here.

A rule says what it keeps; what no rule keeps may go. Rules are data, so that they can be told to the process that
writes, and they compose by union: adding a rule never removes more. Whatever the rules say, the newest healthy
checkpoint stays. Order comes from positions in the manifests, never from names or mtimes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from failsoft.artifacts.manifest import Manifest
from failsoft.errors import ConfigError
from failsoft.training.checkpoints.judged import Judged, metrics_of


@dataclass(frozen=True, kw_only=True)
class Shelved:
    """What a manifest says about one checkpoint."""

    name: str
    position: int
    """Global batches consumed; -1 where the manifest does not say."""
    at_s: float
    """Wall time of publishing."""
    healthy: bool = True
    metrics: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, manifest: Manifest, later: Judged | None = None) -> Shelved:
        """Read the checkpoint's own words, and what was found of it ``later``."""
        meta = manifest.meta
        return cls(
            name=name,
            position=int(meta.get("position", -1)),
            at_s=manifest.created_at_s,
            healthy=meta.get("healthy") is True,
            metrics=metrics_of(manifest, later or {}),
        )


class Rule(Protocol):
    """One reason to keep checkpoints."""

    def keeps(self, shelf: Sequence[Shelved]) -> set[str]:
        """Names to keep, of healthy checkpoints that come oldest first."""
        ...


@dataclass(frozen=True, kw_only=True)
class Last:
    """The newest ``count``: what a restart and a rollback on disk go back to."""

    count: int = 3

    def __post_init__(self) -> None:
        """Refuse to keep nothing."""
        _at_least_one("count", self.count)

    def keeps(self, shelf: Sequence[Shelved]) -> set[str]:
        """The last ones by position."""
        return {one.name for one in shelf[-self.count :]}


@dataclass(frozen=True, kw_only=True)
class Best:
    """The ``count`` best by a metric. One without the metric, or with NaN for it, is never best; ties: the newer."""

    metric: str = "loss"
    count: int = 1
    larger_is_better: bool = False

    def __post_init__(self) -> None:
        """Refuse to keep nothing."""
        _at_least_one("count", self.count)

    def keeps(self, shelf: Sequence[Shelved]) -> set[str]:
        """The best ones by the metric."""
        known = [one for one in shelf if math.isfinite(one.metrics.get(self.metric, math.nan))]
        sign = 1.0 if self.larger_is_better else -1.0
        ranked = sorted(known, key=lambda one: (sign * one.metrics[self.metric], one.position))
        return {one.name for one in ranked[-self.count :]}


@dataclass(frozen=True, kw_only=True)
class Every:
    """One for each ``hours`` of wall time, for good: milestones to look back at."""

    hours: float = 24.0

    def __post_init__(self) -> None:
        """Refuse a span that is no time."""
        if not self.hours > 0.0:
            raise ConfigError(f"hours is {self.hours}; use more than 0, or leave the rule out to keep no milestones")

    def keeps(self, shelf: Sequence[Shelved]) -> set[str]:
        """The oldest, then always the next that is at least so much younger; a clock set back begins a new span."""
        kept: list[Shelved] = []
        for one in shelf:
            if not kept or not 0.0 <= one.at_s - kept[-1].at_s < self.hours * 3600.0:
                kept.append(one)
        return {one.name for one in kept}


_RULES: Mapping[str, type[Last | Best | Every]] = {"last": Last, "best": Best, "every": Every}


def removable(shelf: Iterable[Shelved], rules: Sequence[Rule]) -> list[str]:
    """Names of the checkpoints that no rule keeps, oldest first; never the newest healthy one.

    Without any healthy checkpoint nothing may go: what is there is all there is to look at.
    """
    ordered = sorted(shelf, key=lambda one: (one.position, one.at_s, one.name))
    healthy = [one for one in ordered if one.healthy]
    if not healthy:
        return []
    kept = {healthy[-1].name}.union(*(rule.keeps(healthy) for rule in rules))
    return [one.name for one in ordered if one.name not in kept]


def to_plain(rules: Sequence[Last | Best | Every]) -> list[dict[str, Any]]:
    """The rules as JSON that :func:`from_plain` reads back."""
    words = {kind: word for word, kind in _RULES.items()}
    return [{"rule": words[type(rule)]} | asdict(rule) for rule in rules]


def from_plain(plain: Sequence[Mapping[str, Any]]) -> tuple[Last | Best | Every, ...]:
    """Rules from JSON.

    Raises:
        ConfigError: a rule or one of its settings is unknown or impossible.
    """
    return tuple(_rule(entry) for entry in plain)


def _rule(entry: Mapping[str, Any]) -> Last | Best | Every:
    settings = dict(entry)
    word = settings.pop("rule", None)
    kind = _RULES.get(str(word))
    if kind is None:
        raise ConfigError(f"no rule of keeping is called {word!r}; there are {', '.join(_RULES)}")
    try:
        return kind(**settings)
    except TypeError as error:
        raise ConfigError(f"the rule {word!r} does not know these settings: {error}") from error


def _at_least_one(name: str, value: int) -> None:
    if not value >= 1:
        raise ConfigError(f"{name} is {value}; use 1 or more, or leave the rule out")
