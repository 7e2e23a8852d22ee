"""Train the intent and NER model and publish a release: ``python -m train_jobs.intent_ner --home … --run …``.

The entry point of ``ray job submit``, and a supervisor (see ``train_jobs.entry``, also for its exit statuses). The demo
calls :func:`run_job`, which does all in one process. Importing this loads neither Ray nor torch, so that a caller can
settle Ray's environment first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError, FailsoftError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.faults import FaultPlan
from failsoft.training.escalation import Poisoned
from failsoft.training.pace.policy import RemedyPolicy
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from failsoft.training.survival.notice import Notice
from failsoft.training.survival.preflight import PreflightPolicy
from failsoft.training.survival.room import WorkerRange
from failsoft.training.survival.warmth import SparePolicy
from train_jobs.config import JobConfig, Preset
from train_jobs.entry import hearing, supervise_job
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
    return batches_of(config, recipe_of(config, corpus), len(corpus.train))


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; returns the exit status: 3 too much data was refused, 4 nothing helped, 143 told to leave.

    Errors raised on purpose, and a disk that refuses, become one line.
    """
    given = _parser().parse_args(arguments)
    try:
        config = _config(given)
        notice = Notice()
        with hearing(notice):
            result = supervise_job(config, notice=notice, say=partial(Console().print, markup=False))
    except (FailsoftError, OSError) as error:
        said = Text.assemble((type(error).__name__, "red"), f": {error}")  # brackets in it are no markup
        Console(stderr=True).print(said, highlight=False, soft_wrap=True)
        return error.exit_status if isinstance(error, FailsoftError) else 1
    _print(result, Console())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m train_jobs.intent_ner", description=__doc__)
    parser.add_argument("--home", type=Path, help="root of all files ($FAILSOFT_HOME, else .failsoft here)")
    parser.add_argument("--run", required=True, help="name of the run; the same name again goes on where it stopped")
    parser.add_argument("--data", type=Path, help="folder of a corpus; left out: the embedded corpus")
    parser.add_argument("--preset", type=Preset, choices=list(Preset), help="recipe; left out: what fits the corpus")
    crew = "a number, or the least and the most like 1:4; then the run has what the cluster can hold"
    parser.add_argument("--workers", default="1", metavar="N|MIN:MAX", help=crew)
    parser.add_argument("--threads", type=int, default=1, help="torch threads, and CPUs asked of Ray, per worker")
    parser.add_argument("--gpu", action="store_true", help="give each worker a GPU")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--faults", default="[]", help="planned faults: a JSON list, or the path of a file with one")
    parser.add_argument("--snapshot-every", type=int, default=100, metavar="STEPS")
    places, fates = list(SnapshotPlace), list(Poisoned)
    held = "whose RAM keeps a snapshot: each worker's all, worker 0's, or equal shares"
    parser.add_argument("--snapshot-place", type=SnapshotPlace, choices=places, default=places[0], help=held)
    fate = "batches that a rollback undid: passed over with dead letters, or met again"
    parser.add_argument("--poisoned", type=Poisoned, choices=fates, default=fates[0], help=fate)
    parser.add_argument("--checkpoint-every", type=int, default=2000, metavar="STEPS")
    there = (
        "store for copies of checkpoints (s3://bucket/prefix, gs://…, file:///mnt/…); a fresh machine goes on from it"
    )
    parser.add_argument("--remote", metavar="URL", help=there)
    enough = "stop when no copy could be made for so long; left out: the local ones are enough to go on"
    parser.add_argument("--remote-stop-after", type=float, metavar="SECONDS", help=enough)
    _add_pace_and_validation(parser)
    parser.add_argument("--max-batches", type=int)
    parser.add_argument("--first-wait", type=float, default=10.0, metavar="SECONDS", help="first back-off; then x 3")
    parser.add_argument("--record-consumed", action="store_true", help="keep sample ids for: failsoft verify")
    parser.add_argument("--no-preflight", action="store_true", help="look at no node before an attempt")
    parser.add_argument("--no-spares", action="store_true", help="keep no warm processes for a restart of the workers")
    parser.add_argument("--no-publish", action="store_true", help="train and evaluate only")
    return parser


def _add_pace_and_validation(parser: argparse.ArgumentParser) -> None:
    looks = "look at the validation split after so many updates; the best checkpoint is then the best by that"
    parser.add_argument("--validate-every", type=int, metavar="STEPS", help=looks)
    relieved = "others take over part of a slow worker's samples, until it recovers; left out: it is only named"
    parser.add_argument("--relieve-slow-workers", action="store_true", help=relieved)


def _config(given: argparse.Namespace) -> JobConfig:
    return JobConfig(
        home=Home.find(given.home).root,
        run=given.run,
        data=given.data,
        preset=given.preset,
        workers=WorkerRange.parse(given.workers).given(),
        threads_per_worker=given.threads,
        gpu=given.gpu,
        seed=given.seed,
        faults=_faults(given.faults),
        snapshot_every_steps=given.snapshot_every,
        snapshot_place=given.snapshot_place,
        poisoned=given.poisoned,
        checkpoint_every_steps=given.checkpoint_every,
        validate_every_steps=given.validate_every,
        pace_remedy=RemedyPolicy() if given.relieve_slow_workers else None,
        remote=given.remote,
        remote_stop_after_s=given.remote_stop_after,
        max_batches=given.max_batches,
        backoff=BackoffPolicy(first_s=given.first_wait, cap_s=max(90.0, given.first_wait)),
        record_consumed=given.record_consumed,
        preflight=None if given.no_preflight else PreflightPolicy(),
        spares=SparePolicy(per_worker=int(not given.no_spares)),
        publish=not given.no_publish,
    )


def _faults(given: str) -> FaultPlan:
    if given.lstrip().startswith("["):
        return FaultPlan.from_json(given)
    try:
        return FaultPlan.from_json(Path(given).read_text("utf-8"))
    except OSError as error:
        raise ConfigError(
            f"the fault plan {given} can't be read: {error}; give a JSON list or a file with one"
        ) from error


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
