"""The table of metrics as a page of Markdown: ``docs/metrics.md`` is what this writes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from failsoft.health.ledger import Side
from failsoft.health.metric import Kind, Metric

_HEAD = """# Metrics

Made by `failsoft metrics --markdown > docs/metrics.md` from the table in the code; a test holds it current.

All go through Ray's own exporter (`ray.util.metrics`): Prometheus scrapes each Ray node's metrics port
(`ray start --metrics-export-port 8080`; Ray lists the ports of a cluster in
`/tmp/ray/prom_metrics_service_discovery.json` for `file_sd_configs`). Names are as scraped, with Ray's `ray_` before
them. Ray adds `WorkerId` (one for each process: the replica of a gateway), `NodeAddress`, `SessionName`, `Version` and
`Component`. Counters begin at 0 in each process, so read them by `sum(rate(...))` or `sum(increase(...))`; where Ray's
older exporter is switched on (`RAY_enable_open_telemetry=0`) each counter is there a second time as a gauge without
`_total`, which nothing here reads. A gauge whose process is gone or stands still disappears after two report intervals
(20 s), and so does one whose value is no longer known: what is absent is not known, and never good news.

The port asks for no token and is bound to **all interfaces**, also where the node is told to be 127.0.0.1 (seen with
Ray 2.60), as are the stats and metrics ports of Ray Serve's HAProxy ingress (8404, 9101): keep them behind a firewall
or a network policy.

Labels are bounded: a value that is not listed becomes `other`. Ages are measured on the exporting process's own clock,
never as a difference between two nodes' clocks. Histograms hand on at most 1000 values of a series every 5 s, spread as
all of them were; exact counts are in the counters.
"""
_TITLES = {
    Side.TRAINING: "Training\n\nExported by a run's driver from the run's ledger, progress file and position; the "
    "workers spend nothing on it. `run` is the run's name.",
    Side.SERVING: "Serving\n\nExported by each gateway replica (`serving_`) and by the rollout controller (`rollout_`, "
    "`release_`). `app` is the name of the Serve application: several on one cluster are told apart by it.",
    None: "The exporters themselves",
}


def as_markdown(metrics: Iterable[Metric]) -> str:
    """The whole page."""
    parts = [_HEAD]
    for side, group in groupby(metrics, key=lambda metric: metric.side):
        parts.append(
            f"\n## {_TITLES[side]}\n\n| metric | kind | unit | labels | what it says |\n|---|---|---|---|---|\n"
        )
        parts += [_row(metric) for metric in group]
    return "".join(parts)


def _row(metric: Metric) -> str:
    labels = "; ".join(f"`{label.name}`: {label.in_words()}" for label in metric.all_labels) or "–"
    said = metric.help
    if metric.kind is Kind.HISTOGRAM:
        said += f" Buckets up to {', '.join(f'{end:g}' for end in metric.buckets)}."
    return f"| `{metric.exported}` | {metric.kind} | {metric.unit or '–'} | {labels} | {said} |\n"
