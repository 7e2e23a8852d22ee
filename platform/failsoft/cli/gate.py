"""``failsoft gate``: judges a release, for people and for CI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, app, console
from failsoft.cli.completion import complete_release
from failsoft.cli.said import progress
from failsoft.health.clock import SystemClock

if TYPE_CHECKING:
    from rich.console import Console

    from failsoft.release.replica import Probe
    from failsoft.release.report import GateReport
    from failsoft.release.settings import GateSettings

FAILED = 2
"""Exit code of a release that must not serve."""

AgainstOption = Annotated[
    str | None,
    typer.Option(
        help="Release to compare with, or 'served': the one in service. [dim]Else the one in service, if any.[/dim]"
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Limits and waivers, TOML or YAML. [dim]Else gates.toml of the home.[/dim]"),
]
TrafficOption = Annotated[
    Path | None, typer.Option(help="File with recent texts of callers, one a line; else validation texts.")
]
WaiveOption = Annotated[
    list[str] | None,
    typer.Option("--waive", help="'gate name=reason': let this gate fail, and record why. Repeatable."),
]
ReplicaOption = Annotated[bool, typer.Option(help="Start a replica in a process of its own and have it answer.")]


@dataclass(frozen=True, kw_only=True)
class Judging:
    """How a command judges releases, as its options say."""

    against: str | None = None
    config: Path | None = None
    traffic: Path | None = None
    waive: list[str] | None = None
    replica: bool = True

    def probe(self) -> Probe | None:
        """What starts a replica, where one is to be asked."""
        from train_jobs.replica import probe_replica

        return probe_replica if self.replica else None

    def settings(self, home: Home) -> GateSettings:
        """The project's settings, and the waivers of this one call."""
        from failsoft.release.settings import project_settings
        from failsoft.release.waivers import Waiver

        settings = project_settings(self.config, home.root)
        return replace(settings, waivers=(*settings.waivers, *(Waiver.parse(given) for given in self.waive or ())))

    def judged(self, release: str, home: Home, show: Console) -> GateReport:
        """The report of one release, with a line on the terminal meanwhile."""
        import torch

        from train_jobs.gate import Ask, gate_release, read_traffic

        torch.set_num_threads(1)  # small batches: more threads than free cores take three times as long
        ask = Ask(
            release=release,
            home=home,
            against=self.against,
            traffic=None if self.traffic is None else read_traffic(self.traffic),
            settings=self.settings(home),
            probe=self.probe(),
        )
        with show.status(f"measuring {release}") as line:
            return gate_release(ask, clock=SystemClock(), watch=line.update)


@app.command()
def gate(
    candidate: Annotated[
        str, typer.Argument(help="Name of a published release, or a folder.", autocompletion=complete_release)
    ],
    against: AgainstOption = None,
    config: ConfigOption = None,
    traffic: TrafficOption = None,
    waive: WaiveOption = None,
    json_: Annotated[str | None, typer.Option("--json", metavar="FILE", help="Write JSON; - prints it.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page to read.")] = None,
    replica: ReplicaOption = True,
    home: HomeOption = None,
) -> None:
    """Judge a release before it serves: coverage, spread, quantization, accuracy, skew, a real replica.

    Exit code 0: it passes, or what failed is waived. 2: a gate failed, or could not be measured (also what a mistyped
    option gives: it never passes). 1: the question can't be answered: limits, traffic or reference can't be read.
    """
    from failsoft.release.report import print_report

    how = Judging(against=against, config=config, traffic=traffic, waive=waive, replica=replica)
    report = how.judged(candidate, Home.find(home), progress)
    if json_ == "-":
        print(report.to_json())
    else:
        print_report(report, console)
    write_report(report, json_=Path(json_) if json_ not in (None, "-") else None, junit=junit, html=html)
    if not report.passed:
        raise typer.Exit(code=FAILED)


def write_report(report: GateReport, *, json_: Path | None, junit: Path | None, html: Path | None) -> None:
    """Write the files that were asked for, also when a gate failed: that is when they are read."""
    from failsoft.artifacts.store import write_durably
    from failsoft.release.junit import to_junit
    from failsoft.release.page import to_html

    made: list[tuple[Path | None, Callable[[GateReport], str]]] = [
        (json_, lambda found: found.to_json()),
        (junit, to_junit),
        (html, to_html),
    ]
    for path, text_of in made:
        if path is not None:
            write_durably(path, text_of(report).encode("utf-8", "backslashreplace"))
            typer.echo(f"written: {path}", err=True)
