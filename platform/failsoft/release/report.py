"""What the gates said: for code, as JSON, and for people."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from failsoft.errors import DamagedArtifactError, GateError
from failsoft.health.json_object import json_value

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """One gate's judgement."""

    name: str
    passed: bool
    value: float | None
    """What was measured; None when nothing could be."""
    limit: float | None
    why: str
    """A sentence for people: the value, the limit, and what failing means."""
    waived: str | None = None
    """Why it may fail all the same; None: it may not."""

    def __post_init__(self) -> None:
        """Make its words printable: a path or a caller's text may hold half characters, which no terminal takes."""
        object.__setattr__(self, "name", printable(self.name))
        object.__setattr__(self, "why", printable(self.why))

    @property
    def acceptable(self) -> bool:
        """It passed, or somebody answers for it."""
        return self.passed or self.waived is not None


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """All judgements on one release."""

    release: str
    results: tuple[GateResult, ...]
    against: str | None = None
    """The release that it was compared with; None: with none."""
    notes: tuple[str, ...] = ()
    """What whoever reads this should know: waivers without use, what was not compared and why."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the judgements rest on: digest, texts, limits. Small JSON."""

    def __post_init__(self) -> None:
        """Make its name and notes printable."""
        object.__setattr__(self, "release", printable(self.release))
        object.__setattr__(self, "notes", tuple(map(printable, self.notes)))

    @property
    def passed(self) -> bool:
        """Every gate passed or is waived, and there was one."""
        return bool(self.results) and all(result.acceptable for result in self.results)

    @property
    def failures(self) -> tuple[GateResult, ...]:
        """The gates that did not pass and are not waived."""
        return tuple(result for result in self.results if not result.acceptable)

    @property
    def waived(self) -> tuple[GateResult, ...]:
        """The gates that failed and are waived."""
        return tuple(result for result in self.results if not result.passed and result.acceptable)

    def in_words(self) -> str:
        """One line: how many gates passed, or which failed and why."""
        if self.passed:
            waived = f", {len(self.waived)} of them by a waiver" if self.waived else ""
            return f"release {self.release} passed all {len(self.results)} gates{waived}"
        if not self.results:
            return f"release {self.release} was not measured by any gate"
        reasons = "; ".join(f"{result.name}: {result.why}" for result in self.failures)
        return f"release {self.release} failed {len(self.failures)} of {len(self.results)} gates: {reasons}"

    def raise_unless_passed(self, mend: str) -> None:
        """Stop here when a gate failed.

        Raises:
            GateError: naming each failed gate, why it failed, and ``mend``.
        """
        if not self.passed:
            error = GateError(f"{self.in_words()}. {mend}")
            error.gates = tuple(result.name for result in self.failures)
            raise error

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads; what is not finite becomes null."""
        results = [asdict(result) for result in self.results]
        for result in results:
            result["value"] = _finite(result["value"])
        body = {
            "release": self.release,
            "passed": self.passed,
            "against": self.against,
            "notes": self.notes,
            "facts": dict(self.facts),
            "results": results,
        }
        return json.dumps(body, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> GateReport:
        """Read what :meth:`to_json` wrote, also before it told of references, notes and facts.

        Raises:
            DamagedArtifactError: it is not such a text.
        """
        try:
            body = json_value(text)
            results = tuple(GateResult(**result) for result in body["results"])
            return cls(
                release=str(body["release"]),
                results=results,
                against=body.get("against"),
                notes=tuple(body.get("notes", ())),
                facts=body.get("facts", {}),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedArtifactError(f"this is no gate report ({error!r}); run: failsoft gate") from error


def printable(text: str) -> str:
    """A text without half characters, and without what a terminal would obey or a page can't hold."""
    return _CONTROLS.sub("\ufffd", text.encode("utf-8", "replace").decode("utf-8"))


def print_report(report: GateReport, console: Console) -> None:
    """Print one row for each gate, then the verdict."""
    console.print(report_table(report))
    for note in report.notes:
        console.print(f"note: {note}", highlight=False, markup=False)
    colour = "green" if report.passed else "red"
    if report.passed or not report.results:
        console.print(report.in_words(), style=colour, highlight=False, markup=False)
        return
    count = f"{len(report.failures)} of {len(report.results)} gates failed"
    console.print(f"release {report.release}: {count}", style=colour, highlight=False, markup=False)


def report_table(report: GateReport) -> Table:
    """The judgements as a table."""
    table = Table(title=escape(f"Gates of release {report.release}"), title_justify="left")
    table.add_column("gate")
    table.add_column("", justify="center")
    table.add_column("value", justify="right")
    table.add_column("limit", justify="right")
    table.add_column("why", overflow="fold")
    for result in report.results:
        why = escape(result.why + (f" (waived: {result.waived})" if result.waived else ""))  # may quote callers
        table.add_row(result.name, _mark(result), _number(result.value), _number(result.limit), why)
    return table


def _mark(result: GateResult) -> str:
    if result.passed:
        return "[green]pass[/green]"
    return "[yellow]waived[/yellow]" if result.acceptable else "[red]FAIL[/red]"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
