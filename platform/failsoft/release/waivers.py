"""Gates that a project lets pass on purpose: each with a reason, kept in the report and so in the release.

What makes a release unservable can't be waived: a waiver changes who answers for a risk, it does not load a torn file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase

from failsoft.errors import ConfigError
from failsoft.release.report import GateResult

NEVER_WAIVED = ("loads as serving loads it", "finite weights", "replica: loads and answers", "golden inputs")
_LEAST_REASON = 10


@dataclass(frozen=True, kw_only=True)
class Waiver:
    """Leave to fail one gate."""

    gate: str
    """Name of the gate as the report prints it; ``*`` stands for anything."""
    reason: str
    """Why, and who answers for it: a sentence."""
    until: date | None = None
    """Last day, UTC; None: until it is taken out."""

    def __post_init__(self) -> None:
        """Refuse waivers that say nothing, or that nobody may give."""
        if len(self.reason.strip()) < _LEAST_REASON:
            raise ConfigError(f"the waiver of {self.gate!r} has the reason {self.reason!r}; say in a sentence why")
        if any(sign in self.gate for sign in "?[]"):
            raise ConfigError(f"the waiver of {self.gate!r} is no name of gates; only * stands for anything")
        if not self.gate.strip("* "):
            raise ConfigError(f"a waiver of {self.gate!r} would pass any release; name the gate")
        for never in NEVER_WAIVED:
            if fnmatchcase(never, self.gate):
                raise ConfigError(f"{never!r} can't be waived: such a release could not be served; mend it")

    @classmethod
    def parse(cls, given: str) -> Waiver:
        """A waiver from ``gate name=reason``, as the command line gives it.

        Raises:
            ConfigError: there is no ``=``, or the waiver says nothing.
        """
        gate, equals, reason = given.partition("=")
        if not equals:
            raise ConfigError(f"{given!r} is no waiver; give 'gate name=reason in a sentence'")
        return cls(gate=gate.strip(), reason=reason.strip())


def waive(results: Sequence[GateResult], waivers: Sequence[Waiver], *, today: date) -> tuple[GateResult, ...]:
    """The results, with the reason beside each failed gate that a waiver covers. One that has ended covers none."""
    return tuple(_waived(result, waivers, today) for result in results)


def idle(results: Sequence[GateResult], waivers: Sequence[Waiver], *, today: date) -> tuple[str, ...]:
    """A sentence for each waiver that covers no failed gate: it is out of date, mistyped, or needed no more."""
    said = []
    for waiver in waivers:
        if waiver.until is not None and today > waiver.until:
            said.append(f"the waiver of {waiver.gate!r} ended on {waiver.until}")
        elif not any(fnmatchcase(result.name, waiver.gate) for result in results):
            said.append(f"the waiver of {waiver.gate!r} names no gate of this report")
        elif not any(fnmatchcase(result.name, waiver.gate) and not result.passed for result in results):
            said.append(f"the waiver of {waiver.gate!r} is needed no more: the gate passes")
    return tuple(said)


def _waived(result: GateResult, waivers: Sequence[Waiver], today: date) -> GateResult:
    if result.passed or result.name in NEVER_WAIVED:
        return result
    for waiver in waivers:
        in_force = waiver.until is None or today <= waiver.until
        if in_force and fnmatchcase(result.name, waiver.gate):
            return replace(result, waived=waiver.reason)
    return result
