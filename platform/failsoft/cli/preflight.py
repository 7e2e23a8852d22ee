"""``failsoft preflight``: look at each node of a cluster before a run does."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, app, console
from failsoft.cli.said import JsonOption, print_json
from failsoft.errors import NoRayError
from failsoft.local_ray import local_ray
from train_jobs.connect import ray_answers

if TYPE_CHECKING:
    from rich.table import Table

    from failsoft.training.survival.preflight import Finding, NodeReport


@app.command()
def preflight(
    address: Annotated[
        str | None, typer.Option(envvar="RAY_ADDRESS", help="A Ray cluster; without it a private Ray on this machine.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where runs write; each node tries its disk there. The home's runs without it.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Nodes with fewer CPUs hold no worker and are left out.")] = 1,
    gpu: Annotated[bool, typer.Option("--gpu", help="Look at free GPUs, too, and let nodes meet over NCCL.")] = False,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Look at each node: known products, memory, disk, error counters, an all-reduce. Exit code 1 when one fails.

    It remembers nothing and excludes nobody: a run does the same before each of its attempts, and keeps away from
    nodes that fail until they pass twice.
    """
    place = (folder or Home.find(home).root / "runs").absolute()
    with _connected(address, threads):
        from failsoft.training.ray_preflight import look_at_nodes
        from failsoft.training.ray_settings import RaySettings
        from failsoft.training.survival.preflight import PreflightPolicy

        settings = RaySettings(folder=place, ledger=place / "ledger.jsonl", threads_per_worker=threads, gpu=gpu)
        reports = look_at_nodes(settings, PreflightPolicy())
    if json_:
        print_json([_as_json(report) for report in reports])
    else:
        _print(reports)
    if not reports or not all(report.passed for report in reports):
        raise typer.Exit(code=1)


@contextmanager
def _connected(address: str | None, threads: int) -> Iterator[None]:
    if address is None:
        with local_ray(num_cpus=threads):
            yield
        return
    if not ray_answers({"RAY_ADDRESS": address}):
        raise NoRayError(_nobody_at(address, "nobody answers there"))
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, TimeoutError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise NoRayError(_nobody_at(address, str(error).partition("\n")[0])) from error
    try:
        yield
    finally:
        ray.shutdown()


def _nobody_at(address: str, why: str) -> str:
    return f"no Ray at {address}: {why}; see: ray status --address {address}, or leave --address out for a Ray here"


def _print(reports: Sequence[NodeReport]) -> None:
    if not reports:
        console.print("no node could hold a worker; ask with fewer --threads or without --gpu, and see: ray status")
        return
    console.print(_table(reports))
    for report in reports:
        said = f"{report.host} must not take part: {report.why}" if report.why else f"{report.host} is fit"
        console.print(said, markup=False, highlight=False)


def _table(reports: Sequence[NodeReport]) -> Table:
    from rich.table import Column, Table

    probes = list(dict.fromkeys(finding.probe for report in reports for finding in report.findings))
    node = Column("node", no_wrap=True)
    table = Table(node, *probes, title="preflight", caption="a time: passed in it; –: nothing of the kind is there")
    for report in reports:
        table.add_row(report.host, *(_cell(report, probe) for probe in probes))
    return table


def _cell(report: NodeReport, probe: str) -> str:
    found = next((finding for finding in report.findings if finding.probe == probe), None)
    if found is None:
        return "[dim]not asked[/dim]"
    if found.bad:
        return f"[red]{found.outcome}[/red]"
    return f"[green]{found.took_s * 1000.0:.0f} ms[/green]" if found.outcome == "passed" else "[dim]–[/dim]"


def _as_json(report: NodeReport) -> dict[str, object]:
    findings = [_finding_as_json(finding) for finding in report.findings]
    return {"node": report.node, "host": report.host, "passed": report.passed, "findings": findings}


def _finding_as_json(finding: Finding) -> dict[str, object]:
    return {"probe": finding.probe, "outcome": finding.outcome, "why": finding.why, "took_s": round(finding.took_s, 4)}
