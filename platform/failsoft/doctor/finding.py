"""One thing that was looked at, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum


class Mark(StrEnum):
    """How something was found."""

    GOOD = "good"
    REMARK = "remark"
    """Works, and may surprise somebody."""
    UNKNOWN = "unknown"
    """Could not be looked at; no good news."""
    BAD = "bad"
    """Something will fail, or stands open."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence on one thing, and the mend where there is one."""

    about: str
    mark: Mark
    said: str
    mend: str = ""

    def to_json(self) -> dict[str, str]:
        """Its fields as JSON holds them."""
        return {name: str(value) for name, value in asdict(self).items()}


def exit_status(findings: Iterable[Finding]) -> int:
    """1 when anything is bad; what is not known does not fail a script, it is shown."""
    return int(any(finding.mark is Mark.BAD for finding in findings))
