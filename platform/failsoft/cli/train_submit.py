"""``failsoft train --submit``: the same job, handed to a cluster by Ray's own job client, and followed from here."""

from __future__ import annotations

import argparse
import logging
import shlex
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import typer
from rich.markup import escape

from failsoft.cli.clusters import Cluster, cluster_at
from failsoft.cli.followed_job import Ended, Jobs, follow
from failsoft.cli.said import print_json, progress
from failsoft.errors import ConfigError
from failsoft.health.clock import Clock, SystemClock
from train_jobs.options import config_of, parser

MODULE = "train_jobs.intent_ner"
INTERRUPTED = 130
_NO_HOME = (
    "FAILSOFT_HOME is not set where this Ray was started, and a run in its own folder would be lost with it; set "
)
_NO_HOME += "it there, or give a folder that all nodes share: failsoft train --submit ... --home FOLDER"


class JobClient(Jobs, Protocol):
    """And what is needed of it to hand a job over."""

    def submit_job(self, *, entrypoint: str, runtime_env: dict[str, Any], metadata: dict[str, str]) -> str:
        """Its id."""
        ...

    def stop_job(self, job_id: str) -> bool:
        """Whether it was running."""
        ...


@dataclass(frozen=True, kw_only=True)
class Submission:
    """How a job is handed over."""

    address: str
    folder: Path | None = None
    """What is uploaded for it to run in; None: a checkout that is the working folder, else nothing."""
    follow: bool = True
    stop_on_interrupt: bool = False
    json: bool = False
    """Say how it ended as JSON on standard output; its log goes to standard error."""

    def __post_init__(self) -> None:
        """Refuse what is no folder."""
        if self.folder is not None and not self.folder.is_dir():
            raise ConfigError(f"--working-dir is {self.folder}, which is no folder")


def submit_train(given: Namespace, how: Submission) -> int:
    """Hand the job over; returns the exit status of this command, which is the job's where it was followed.

    Raises:
        ConfigError: the job can't be meant, or the cluster is not for us.
        NoRayError: no Ray answers.
    """
    refuse_what_cannot_be_meant(given)
    cluster = cluster_at(how.address)
    for remark in cluster.remarks:
        progress.print(f"[yellow]mind:[/yellow] {escape(remark)}", highlight=False)
    return hand_over(_client(cluster), given, how, cluster, clock=SystemClock())


def hand_over(jobs: JobClient, given: Namespace, how: Submission, cluster: Cluster, *, clock: Clock) -> int:
    """The same with a client that is there already."""
    job_id = jobs.submit_job(
        entrypoint=entrypoint(given),
        runtime_env=runtime_env(how.folder, Path.cwd()),
        metadata={"failsoft_run": str(given.run)},
    )
    _say(f"submitted run {given.run} to Ray {cluster.ray} at {cluster.url} as {job_id}")
    if not how.follow:
        _say_ways(job_id, cluster)
        return _told(how, job_id, Ended(status="SUBMITTED", exit_status=0, message=""))
    try:
        ended = follow(jobs, job_id, show=_shown(how), clock=clock)
    except KeyboardInterrupt:
        ended = _interrupted(jobs, job_id, how, cluster, clock)
    return _told(how, job_id, ended)


def refuse_what_cannot_be_meant(given: Namespace) -> None:
    """Before anything is sent; a corpus is looked for where the job runs, unless it is uploaded with it.

    Raises:
        ConfigError: something of it can't be meant.
    """
    config_of(Namespace(**{**vars(given), "data": None}))


def entrypoint(given: Namespace) -> str:
    """The shell command that the head runs: the job with all that was asked for, and a home that outlives it."""
    command = shlex.join(["python", "-m", MODULE, *words_of(given)])
    if given.home is not None:
        return command
    return f'[ -n "$FAILSOFT_HOME" ] || {{ echo {shlex.quote(_NO_HOME)} >&2; exit 1; }}; exec {command}'


def words_of(given: Namespace) -> list[str]:
    """The options of ``python -m train_jobs.intent_ner`` that ask for the same; what is its default is left out."""
    return [word for action in parser()._actions if action.dest != "help" for word in _words(action, given)]


def _words(action: argparse.Action, given: Namespace) -> Iterator[str]:
    value, option = getattr(given, action.dest), action.option_strings[0]
    if value == action.default or (value is None and not action.required):
        return
    if isinstance(action, argparse.BooleanOptionalAction):
        yield option if value else action.option_strings[1]
    elif action.nargs == 0:
        yield option
    else:
        for one in value if isinstance(value, list | tuple) else [value]:
            yield from (option, str(getattr(one, "value", one)))


def runtime_env(folder: Path | None, here: Path) -> dict[str, Any]:
    """What Ray brings to the job: an uploaded folder; a checkout's failsoft is then the one that runs.

    Without the path a checkout's job would run with whichever failsoft is installed there.
    """
    chosen = folder if folder is not None else here if (here / "train_jobs" / "intent_ner.py").is_file() else None
    if chosen is None:
        return {}
    is_checkout = (chosen / "platform" / "failsoft").is_dir()
    env = {"working_dir": str(chosen.resolve())}
    return env | ({"env_vars": {"PYTHONPATH": "platform"}} if is_checkout else {})


def _client(cluster: Cluster) -> JobClient:
    from ray.job_submission import JobSubmissionClient

    for name in ("dashboard_sdk", "job.sdk"):  # which upload is there already, and each connection that is closed
        logging.getLogger(f"ray.dashboard.modules.{name}").setLevel(logging.WARNING)
    client: JobClient = JobSubmissionClient(cluster.url)
    return client


def _shown(how: Submission) -> Any:
    return lambda text: typer.echo(text, nl=False, err=how.json)


def _interrupted(jobs: JobClient, job_id: str, how: Submission, cluster: Cluster, clock: Clock) -> Ended:
    _say("")
    if not how.stop_on_interrupt:
        _say(f"Ctrl-C: only this command ends, the job {job_id} goes on")
        _say_ways(job_id, cluster)
        return Ended(status="RUNNING", exit_status=INTERRUPTED, message="")
    _say(f"Ctrl-C: the job {job_id} is told to save and leave; the same command goes on. Again: only this command ends")
    try:
        jobs.stop_job(job_id)
        return follow(jobs, job_id, show=lambda _seen: None, clock=clock)
    except KeyboardInterrupt:
        _say_ways(job_id, cluster)
        return Ended(status="RUNNING", exit_status=INTERRUPTED, message="")


def _say_ways(job_id: str, cluster: Cluster) -> None:
    for verb, why in (("logs --follow", "its log"), ("status", "how it stands"), ("stop", "save and leave")):
        _say(f"  ray job {verb} --address {cluster.url} {job_id}    # {why}")


def _told(how: Submission, job_id: str, ended: Ended) -> int:
    if how.json:
        print_json({"job": job_id, "status": ended.status, "exit_code": ended.exit_status, "message": ended.message})
    elif ended.exit_status not in {0, INTERRUPTED}:
        why = " ".join(ended.message.split("\n\n")[0].split())
        _say(f"the job {job_id} {ended.status.lower()} with exit status {ended.exit_status}: {why}".rstrip(": "))
    return ended.exit_status


def _say(words: str) -> None:
    progress.print(words, markup=False, highlight=False, soft_wrap=True)
