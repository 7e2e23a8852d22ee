"""``failsoft metrics``: every metric there is, as a table, as Markdown for the docs, or as JSON."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from failsoft.cli.app import app, console
from failsoft.cli.said import JsonOption, print_json
from failsoft.errors import ConfigError
from failsoft.health.metric import Metric
from failsoft.health.metric_page import as_markdown
from failsoft.health.metric_table import TABLE


@app.command()
def metrics(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/metrics.md.")] = False,
    json_: JsonOption = False,
) -> None:
    """List what Prometheus can scrape: names, kinds, labels, and what each one says."""
    if markdown and json_:
        raise ConfigError("--markdown and --json are two forms of the same answer; ask for one of them")
    if markdown:
        typer.echo(as_markdown(TABLE.values()), nl=False)
    elif json_:
        print_json([_plain(metric) for metric in TABLE.values()])
    else:
        console.print(_table())


def _table() -> Table:
    table = Table(title="Metrics, as Prometheus scrapes them", title_justify="left")
    for name in ("metric", "kind", "labels", "what it says"):
        table.add_column(name, overflow="fold")
    for metric in TABLE.values():
        labels = ", ".join(label.name for label in metric.all_labels)
        table.add_row(metric.exported, metric.kind, labels, metric.help)
    return table


def _plain(metric: Metric) -> dict[str, object]:
    return {
        "name": metric.exported,
        "kind": metric.kind,
        "side": metric.side,
        "unit": metric.unit,
        "help": metric.help,
        "labels": {label.name: list(label.values) for label in metric.all_labels},
        "buckets": list(metric.buckets),
    }
