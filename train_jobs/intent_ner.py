"""Train the intent and NER model and publish a release: ``python -m train_jobs.intent_ner --home … --run …``.

The entry point of ``ray job submit``, and a supervisor (see ``train_jobs.entry``, also for its exit statuses). The demo
calls :func:`run_job`, which does all in one process. Importing this loads neither Ray nor torch, so that a caller can
settle Ray's environment first.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

from failsoft.artifacts.home import Home
from failsoft.errors import FailsoftError
from failsoft.training.survival.notice import Notice
from train_jobs.config import JobConfig, Preset
from train_jobs.entry import hearing, supervise_job
from train_jobs.options import config_of, parser
from train_jobs.result import JobResult

__all__ = ["JobConfig", "JobResult", "Preset", "main", "planned_batches", "run_job"]


def run_job(config: JobConfig) -> JobResult:
    """Train on the Ray that this process is connected to, evaluate, publish; see ``train_jobs.job``.

    Raises:
        FailsoftError: whatever stopped the run; the message says what to do.
    """
    from train_jobs import job  # noqa: PLC0415 -- loads Ray, whose environment must be settled by then

    everywhere = replace(config, home=Home.find(config.home).root)  # workers run in other folders
    return job.run_job(everywhere)


def planned_batches(config: JobConfig) -> int:
    """How many global batches the job will consume; for placing faults."""
    from failsoft.models.corpora import load_corpus  # noqa: PLC0415 -- as above
    from train_jobs.workload import batches_of, recipe_of  # noqa: PLC0415 -- as above

    corpus = load_corpus(config.data)
    return batches_of(config, recipe_of(config, corpus), corpus.num_samples)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; returns the exit status: 3 too much data was refused, 4 nothing helped, 143 told to leave.

    Errors raised on purpose, and a disk that refuses, become one line.
    """
    given = parser().parse_args(arguments)
    try:
        config = config_of(given)
        notice = Notice()
        with hearing(notice):
            result = supervise_job(config, notice=notice, say=partial(Console().print, markup=False))
    except (FailsoftError, OSError) as error:
        said = Text.assemble((type(error).__name__, "red"), f": {error}")  # brackets in it are no markup
        Console(stderr=True).print(said, highlight=False, soft_wrap=True)
        return error.exit_status if isinstance(error, FailsoftError) else 1
    _print(result, Console())
    return 0


def _print(result: JobResult, console: Console) -> None:
    quality = Table("measure", "value", title=f"Quality of run {result.run} on the test split")
    for measure, value in result.quality.items():
        if isinstance(value, int | float):
            quality.add_row(measure, f"{value:.4f}" if isinstance(value, float) else str(value))
    console.print(quality)
    console.print(f"corpus: {result.corpus_report}", markup=False)
    summary = result.summary
    console.print(
        f"{summary.steps_applied} updates of {summary.batches_total} batches in {summary.took_s:.1f} s; "
        f"{summary.batches_refused} refused, {summary.rollbacks} rollbacks, {summary.worker_deaths} worker deaths, "
        f"{summary.batches_repeated} batches repeated; "
        f"{'–' if summary.ettr is None else f'{summary.ettr:.1%}'} of the time was productive (failsoft goodput "
        f"{result.run} tells the rest); weights {result.weights_digest}"
    )
    console.print(summary.degraded.in_words(), markup=False)
    console.print("no release was asked for" if result.bundle is None else f"release {result.bundle.name}")


if __name__ == "__main__":
    from train_jobs.intent_ner import main as named_main  # by its name, so that workers can import what they are sent

    sys.exit(named_main())
