"""A gate report for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from failsoft.release.gates import GateReport, GateResult


def print_report(report: GateReport, console: Console) -> None:
    """Print one row for each gate, then the verdict."""
    console.print(report_table(report))
    colour = "green" if report.passed else "red"
    if report.passed or not report.results:
        console.print(f"[{colour}]{report.in_words()}[/{colour}]", highlight=False)
        return
    count = f"{len(report.failures)} of {len(report.results)} gates failed"
    console.print(f"[{colour}]release {report.release}: {count}[/{colour}]", highlight=False)


def report_table(report: GateReport) -> Table:
    """The judgements as a table."""
    table = Table(title=f"Gates of release {report.release}", title_justify="left")
    table.add_column("gate")
    table.add_column("", justify="center")
    table.add_column("value", justify="right")
    table.add_column("limit", justify="right")
    table.add_column("why", overflow="fold")
    for result in report.results:
        table.add_row(result.name, _mark(result), _number(result.value), _number(result.limit), result.why)
    return table


def _mark(result: GateResult) -> str:
    return "[green]pass[/green]" if result.passed else "[red]FAIL[/red]"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
