"""A run's metrics on Ray's exporter, for as long as its driver is connected to Ray."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from failsoft.artifacts.home import Home
from failsoft.health.clock import SystemClock
from failsoft.health.exporter import Exporter
from failsoft.health.ledger import Side
from failsoft.health.metric_book import MetricBook
from failsoft.training.accounting.run_metrics import RunMetrics
from train_jobs.config import JobConfig


@contextmanager
def exporting(config: JobConfig) -> Iterator[None]:
    """Export from a thread of this process, which is connected to Ray, while the block runs."""
    from failsoft.health.metrics import RaySink  # noqa: PLC0415 -- loads Ray, whose environment stands by now

    home, clock, book = Home.find(config.home), SystemClock(), MetricBook()
    with closing(RunMetrics(home.run(config.run), home.ledger, book, clock)) as run:
        exporter = Exporter(book, RaySink, run.look, side=Side.TRAINING, clock=clock)
        with exporter.exporting():
            yield
