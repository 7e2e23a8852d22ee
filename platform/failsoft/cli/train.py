"""``failsoft train``: the job with a progress bar, and its result as tables."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING

import typer

from failsoft.cli import train_options as ask
from failsoft.cli.app import HomeOption, app, console
from failsoft.cli.said import JsonOption, print_json, progress
from failsoft.errors import ConfigError
from failsoft.training.escalation import Poisoned
from failsoft.training.snapshots.snapshot_place import SnapshotPlace

if TYPE_CHECKING:
    from train_jobs.config import JobConfig
    from train_jobs.result import JobResult


@app.command()
def train(
    data: ask.DataOption = None,
    run: ask.RunOption = "first",
    workers: ask.WorkersOption = "1",
    threads: ask.ThreadsOption = 2,
    gpu: ask.GpuOption = False,
    preset: ask.PresetOption = None,
    seed: ask.SeedOption = 7,
    epochs: ask.EpochsOption = None,
    max_batches: ask.MaxBatchesOption = None,
    faults: ask.FaultsOption = "[]",
    first_wait: ask.FirstWaitOption = 10.0,
    snapshot_every: ask.SnapshotEveryOption = 100,
    snapshot_place: ask.SnapshotPlaceOption = SnapshotPlace.EACH_RANK,
    poisoned: ask.PoisonedOption = Poisoned.SKIP,
    checkpoint_every: ask.CheckpointEveryOption = 2000,
    checkpoint_every_time: ask.CheckpointTimeOption = None,
    checkpoint_at_epoch_end: ask.CheckpointEpochOption = False,
    mtbf: ask.MtbfOption = None,
    keep_last: ask.KeepLastOption = 3,
    keep_best: ask.KeepBestOption = 1,
    remote: ask.RemoteOption = None,
    remote_stop_after: ask.RemoteStopOption = None,
    validate_every: ask.ValidateOption = None,
    validate_at_epoch_end: ask.ValidateEpochOption = False,
    track: ask.TrackOption = None,
    relieve_slow_workers: ask.RelieveOption = False,
    record_consumed: ask.RecordConsumedOption = False,
    preflight: ask.PreflightOption = True,
    spares: ask.SparesOption = True,
    publish: ask.PublishOption = True,
    submit: ask.SubmitOption = None,
    working_dir: ask.WorkingDirOption = None,
    follow: ask.FollowOption = True,
    stop_on_interrupt: ask.StopOnInterruptOption = False,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Train intents and slots, print the quality as a table, gate and publish a release.

    On the Ray of $RAY_ADDRESS, else on a private one. Ctrl-C saves and leaves; the same command goes on.
    With --submit a cluster carries it out and only its log is here: Ctrl-C leaves it to go on, paths are the cluster's.
    """
    _carry_out(Namespace(**locals()))  # by the names that ``python -m train_jobs.intent_ner`` knows them


def _carry_out(given: Namespace) -> None:
    from train_jobs.options import config_of

    if given.submit is not None:
        raise typer.Exit(_submitted(given))
    if given.working_dir is not None or given.stop_on_interrupt or not given.follow:
        raise ConfigError(
            "--working-dir, --no-follow and --stop-on-interrupt are for a job that is handed on: --submit"
        )
    _show_result(_trained(config_of(given)), json_=given.json_)


def _submitted(given: Namespace) -> int:
    from failsoft.cli.train_submit import Submission, submit_train

    how = Submission(
        address=given.submit,
        folder=given.working_dir,
        follow=given.follow,
        stop_on_interrupt=given.stop_on_interrupt,
        json=given.json_,
    )
    return submit_train(given, how)


def _trained(config: JobConfig) -> JobResult:
    from failsoft.demo.training_act import train_with_progress
    from failsoft.training.survival.notice import Notice
    from train_jobs.entry import hearing, supervise_job

    notice = Notice()
    with hearing(notice):
        carry_out = partial(supervise_job, notice=notice, say=partial(progress.print, markup=False))
        return train_with_progress(config, progress, carry_out)


def _show_result(result: JobResult, *, json_: bool) -> None:
    from failsoft.demo.tables import quality_table, to_rich, training_table

    if json_:
        print_json(result.to_json())
        return
    console.print(f"corpus: {result.corpus_report}", markup=False)
    console.print(to_rich(quality_table(result.quality)))
    console.print(to_rich(training_table(result.summary, result.quality)))
    if result.bundle is not None:
        console.print(f"published: [bold]{result.bundle.name}[/bold]. Next: failsoft serve")
