"""A run's metrics on Ray's exporter and in trackers, for as long as its driver is connected to Ray."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from pydantic import TypeAdapter

from failsoft.artifacts.address import without_secrets
from failsoft.artifacts.home import Home
from failsoft.artifacts.manifest import digest_bytes
from failsoft.health.clock import SystemClock
from failsoft.health.exporter import Exporter
from failsoft.health.ledger import Side
from failsoft.health.metric_book import MetricBook
from failsoft.training.accounting.run_metrics import RunMetrics
from failsoft.training.trackers.tracker import RunFacts
from failsoft.training.trackers.tracking import opener, tracked
from train_jobs.config import JobConfig


@contextmanager
def exporting(config: JobConfig) -> Iterator[None]:
    """Export from a thread of this process, which is connected to Ray, while the block runs."""
    from failsoft.health.metrics import RaySink  # noqa: PLC0415 -- loads Ray, whose environment stands by now

    home, clock, book = Home.find(config.home), SystemClock(), MetricBook()
    with closing(RunMetrics(home.run(config.run), home.ledger, book, clock)) as run:
        exporter = Exporter(book, RaySink, run.look, side=Side.TRAINING, clock=clock)
        with exporter.exporting(), tracking(config):
            yield


@contextmanager
def tracking(config: JobConfig) -> Iterator[None]:
    """Tell the run's trackers what happens while the block runs.

    Raises:
        ConfigError: the library of one is not installed.
    """
    for address in config.trackers():
        address.refuse_unless_installed()
    home, clock = Home.find(config.home), SystemClock()
    openers = [(str(address.kind), opener(address, clock)) for address in config.trackers()]
    with tracked(facts_of(config, home), home.ledger, openers, clock):
        yield


def facts_of(config: JobConfig, home: Home) -> RunFacts:
    """What trackers are told of a run. Another home's run of the same name is another one."""
    digest = digest_bytes(f"{home.root}\n{config.run}".encode()).rpartition(":")[2][:12]
    asked = TypeAdapter(JobConfig).dump_python(config, mode="json")
    return RunFacts(
        run=config.run,
        identity=f"{re.sub('[^A-Za-z0-9-]', '-', config.run)[:48]}-{digest}",
        folder=home.run(config.run),
        config=dict(_flat(asked)),
    )


def _flat(asked: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Settings by their full names, as texts; what was left out is left out, and so are passwords in addresses."""
    for name, value in asked.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        elif value not in (None, [], ()) and name != "track":
            yield f"{above}{name}", without_secrets(str(value))
