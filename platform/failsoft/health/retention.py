"""How long what is kept about requests and runs stays: a home's ``retention.toml``, and the cut that it makes now.

.. code-block:: toml

    texts_days = 30          # what is not named stays as below; inf: for ever
    ledger_mb = 2048
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from failsoft.errors import ConfigError
from failsoft.health.toml_object import toml_object

FILE_NAME = "retention.toml"
DAY_S = 86_400.0
_MB = 1_000_000


@dataclass(frozen=True, kw_only=True)
class RetentionPolicy:
    """How long each kind stays, in ``retention.toml``; ``failsoft purge`` applies it, gateways do so each hour.

    A ledger that fills a file holds itself to its size.
    """

    texts_days: float = 30.0
    """Texts of requests that went wrong, which are kept only where ``keep_texts`` is on; their shapes stay."""
    specimens_days: float = 90.0
    """Such requests altogether: shape, reason, and who is known to have sent it."""
    answers_days: float = 400.0
    """The counts of who answered, span by span, that incidents and reports are drawn from: a year, and a month to
    compare …"""
    answers_mb: float = 100.0
    """… and no more of them than this."""
    ledger_days: float = 400.0
    """Events of both sides …"""
    ledger_mb: float = 1000.0
    """… and no more of them than this; some three million."""
    letters_days: float = 400.0
    """Dead letters of runs that no process drives, and the input tensors kept beside them."""
    stacks_days: float = 90.0
    """Stacks that workers left when they hung."""
    reports_days: float = 400.0
    """Pages and pictures of incidents in the folder ``reports``; one that shows a text goes with the text."""

    def __post_init__(self) -> None:
        """Refuse what keeps nothing, or is no number."""
        for one in fields(self):
            value = getattr(self, one.name)
            if not (isinstance(value, int | float) and not isinstance(value, bool) and value > 0):
                raise ConfigError(f"{one.name} is {value!r}; use a number above 0, or inf to keep it for ever")
        if not self.texts_days <= self.specimens_days <= self.answers_days:
            raise ConfigError(
                f"texts_days is {self.texts_days:g}, specimens_days {self.specimens_days:g}, answers_days "
                f"{self.answers_days:g}; each is a part of the next, so it stays no longer than that"
            )

    def cut(self, now_s: float) -> Cut:
        """What is too old at this wall time."""
        return Cut(
            texts_s=now_s - self.texts_days * DAY_S,
            specimens_s=now_s - self.specimens_days * DAY_S,
            answers_s=now_s - self.answers_days * DAY_S,
            ledger_s=now_s - self.ledger_days * DAY_S,
            letters_s=now_s - self.letters_days * DAY_S,
            stacks_s=now_s - self.stacks_days * DAY_S,
            reports_s=now_s - self.reports_days * DAY_S,
        )

    @property
    def answers_bytes(self) -> int | None:
        """The same in bytes; None: as many as there are."""
        return _bytes(self.answers_mb)

    @property
    def ledger_bytes(self) -> int | None:
        """The same in bytes; None: as many as there are."""
        return _bytes(self.ledger_mb)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """What is to go: of each kind that which is from before a wall time; ``-inf`` leaves all of the kind."""

    texts_s: float = -math.inf
    specimens_s: float = -math.inf
    answers_s: float = -math.inf
    ledger_s: float = -math.inf
    letters_s: float = -math.inf
    stacks_s: float = -math.inf
    reports_s: float = -math.inf
    marks: frozenset[str] = frozenset()
    """Of requests and callers, whatever their age: 16 hexadecimal digits, as they stand beside a kept text."""


def _bytes(megabytes: float) -> int | None:
    total = float(megabytes) * _MB
    return None if math.isinf(total) else int(total)


def read_retention(root: Path) -> RetentionPolicy:
    """What ``retention.toml`` in a home says, and the defaults for all else.

    Raises:
        ConfigError: the file can't be read, or something in it can't be meant; the sentence names it.
    """
    path = root / FILE_NAME
    try:
        body: dict[str, Any] = toml_object(path.read_text("utf-8"))
    except FileNotFoundError:
        return RetentionPolicy()
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} can't be read as retention settings ({error}); give a TOML file") from error
    known = [one.name for one in fields(RetentionPolicy)]
    odd = [name for name in body if name not in known]
    if odd:
        raise ConfigError(f"{path} names {odd[0]!r}, which is no setting; there are: {', '.join(known)}")
    try:
        return RetentionPolicy(**body)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
