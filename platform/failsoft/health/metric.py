"""What a metric is: its name, kind, unit, help and labels, declared once and checked for Prometheus' conventions.

A name says the unit (``_seconds``, ``_bytes``, ``_ratio`` for 0 to 1); counters end in ``_total``. Labels have bounded
sets: closed ones are listed, of open ones (names of runs, of rungs) so many values are kept apart and the rest is
``other``, so that no traffic and no number of restarts can make a scrape grow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from failsoft.errors import ConfigError
from failsoft.health.ledger import Side

OTHER = "other"
"""The value of a label that is none of those it may have."""
PREFIX = "ray_"
"""Ray's exporter puts this before every name."""
_NAME = re.compile(r"failsoft(_[a-z0-9]+)+")
_LABEL = re.compile(r"[a-z][a-z0-9_]*")
_RESERVED_ENDS = ("_total", "_count", "_sum", "_bucket")
_RAYS_LABELS = frozenset({"le", "quantile", "job", "instance"})


class Kind(StrEnum):
    """How a metric's values behave."""

    COUNTER = "counter"
    """Only grows, and starts from 0 in each process: read it by ``rate`` or ``increase``."""
    GAUGE = "gauge"
    """What holds now; NaN: not known, and then not exported."""
    HISTOGRAM = "histogram"
    """Values counted in buckets."""


@dataclass(frozen=True, kw_only=True)
class Label:
    """One label, and the values that it may have."""

    name: str
    values: tuple[str, ...] = ()
    """All there are, but for ``other``; empty: whatever comes, ``at_most`` of them."""
    at_most: int = 64
    """Of an open set so many values are kept apart in one process; ``other`` is the rest."""

    def __post_init__(self) -> None:
        """Refuse names that Prometheus or Ray use themselves."""
        if not _LABEL.fullmatch(self.name) or self.name in _RAYS_LABELS:
            raise ConfigError(f"label {self.name!r} is no free label name; use lower_snake_case, and none of Ray's own")
        if not self.at_most >= 1:
            raise ConfigError(f"at_most of label {self.name} is {self.at_most}; keep at least 1 value apart")

    def in_words(self) -> str:
        """For the documentation."""
        values = ", ".join(f"`{value}`" for value in self.values)
        return values or f"as named; {self.at_most} at most, then `{OTHER}`"


@dataclass(frozen=True, kw_only=True, eq=False)  # each is declared once, and is a key on hot paths
class Metric:
    """One metric, as it is declared."""

    name: str
    """Without Ray's prefix; a counter's with ``_total``."""
    kind: Kind
    help: str
    """A sentence: what it says, and where it comes from."""
    side: Side | None
    """Who exports it; None: both."""
    unit: str = ""
    """The end of its name that says the unit; empty for plain numbers."""
    labels: tuple[Label, ...] = ()
    """Whoever notes a value gives theirs, in this order."""
    everywhere: tuple[Label, ...] = ()
    """Labels of the process that exports it; their values are the same for all that it notes."""
    buckets: tuple[float, ...] = ()
    """Upper ends, of a histogram."""

    def __post_init__(self) -> None:
        """Refuse what would not be understood by whoever knows Prometheus."""
        flaw = self._flaw()
        if flaw:
            raise ConfigError(f"metric {self.name!r} {flaw}")

    @property
    def all_labels(self) -> tuple[Label, ...]:
        """Those of each value, and those of its process."""
        return (*self.labels, *self.everywhere)

    @property
    def exported(self) -> str:
        """Its name where Prometheus scrapes it."""
        return PREFIX + self.name

    @property
    def registered(self) -> str:
        """Its name where Ray is told of it: Ray puts ``_total`` behind every counter itself."""
        return self.name.removesuffix("_total")

    @property
    def series(self) -> tuple[str, ...]:
        """The names under which a query may ask for it."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(self.exported + end for end in ("_bucket", "_count", "_sum"))
        return (self.exported,)

    def _flaw(self) -> str:
        base = self.name.removesuffix("_total")
        checks = (
            (bool(_NAME.fullmatch(self.name)), "is no name; use failsoft_ and lower_snake_case"),
            ((self.kind is Kind.COUNTER) == (base != self.name), "ends in _total if and only if it is a counter"),
            (not base.endswith(_RESERVED_ENDS), f"ends like a series of Prometheus' own: {_RESERVED_ENDS}"),
            (not self.unit or base.endswith(f"_{self.unit}"), f"does not end in its unit {self.unit!r}"),
            (self.help[:1] == self.help[:1].upper() and self.help.endswith("."), "has no help; write a sentence"),
            ((self.kind is Kind.HISTOGRAM) == bool(self.buckets), "has buckets if and only if it is a histogram"),
            (all(low < high for low, high in pairwise((0.0, *self.buckets))), "has buckets that do not grow from 0"),
            (len({label.name for label in self.all_labels}) == len(self.all_labels), "has two labels of one name"),
        )
        return next((words for holds, words in checks if not holds), "")
