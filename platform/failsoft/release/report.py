"""What the gates said: for code, as JSON, and for people."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from failsoft.errors import DamagedArtifactError, GateError


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


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """All judgements on one release."""

    release: str
    results: tuple[GateResult, ...]

    @property
    def passed(self) -> bool:
        """Every gate passed, and there was one."""
        return bool(self.results) and all(result.passed for result in self.results)

    @property
    def failures(self) -> tuple[GateResult, ...]:
        """The gates that did not pass."""
        return tuple(result for result in self.results if not result.passed)

    def in_words(self) -> str:
        """One line: how many gates passed, or which failed and why."""
        if self.passed:
            return f"release {self.release} passed all {len(self.results)} gates"
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
            raise GateError(f"{self.in_words()}. {mend}")

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads; what is not finite becomes null."""
        results = [asdict(result) for result in self.results]
        for result in results:
            result["value"] = _finite(result["value"])
        body = {"release": self.release, "passed": self.passed, "results": results}
        return json.dumps(body, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> GateReport:
        """Read what :meth:`to_json` wrote.

        Raises:
            DamagedArtifactError: it is not such a text.
        """
        try:
            body = json.loads(text)
            results = tuple(GateResult(**result) for result in body["results"])
            return cls(release=str(body["release"]), results=results)
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedArtifactError(f"this is no gate report ({error!r}); run: failsoft gate") from error


def print_report(report: GateReport, console: Console) -> None:
    """Print one row for each gate, then the verdict."""
    console.print(report_table(report))
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
        why = escape(result.why)  # it may quote a caller's text
        table.add_row(result.name, _mark(result), _number(result.value), _number(result.limit), why)
    return table


def _mark(result: GateResult) -> str:
    return "[green]pass[/green]" if result.passed else "[red]FAIL[/red]"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
