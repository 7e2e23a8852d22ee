"""First act of the demo: a training run that meets a burst of NaN batches and loses its worker, and finishes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from failsoft.artifacts.home import Home
from failsoft.health.faults import Fault, FaultKind, FaultPlan, burst
from failsoft.training.progress import read_progress
from train_jobs.config import JobConfig
from train_jobs.intent_ner import run_job
from train_jobs.result import JobResult

_POLL_S = 0.25


def faults_for(total_batches: int) -> FaultPlan:
    """Five NaN batches in a row after two fifths of the run, and a SIGKILL to the worker after two thirds.

    Neither lies on a round number, where a snapshot or checkpoint was just taken: that would flatter the result.
    """
    nan_burst = burst(FaultKind.NAN_BATCH, first=total_batches * 2 // 5 + 13, count=5)
    kill = Fault(kind=FaultKind.KILL_WORKER, position=total_batches * 2 // 3)
    return FaultPlan(faults=(*nan_burst, kill))


def train_with_progress(
    config: JobConfig, console: Console, run: Callable[[JobConfig], JobResult] = run_job
) -> JobResult:
    """Run the job in a thread and show its progress file as a bar.

    Args:
        config: the job.
        console: shows.
        run: carries it out.

    Raises:
        FailsoftError: whatever stopped the run.
    """
    outcome: list[JobResult] = []
    failure: list[BaseException] = []
    thread = threading.Thread(target=_run, args=(run, config, outcome, failure), name="training-job", daemon=True)
    thread.start()
    _show(Home.find(config.home), config.run, thread, console)
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def _run(
    run: Callable[[JobConfig], JobResult],
    config: JobConfig,
    outcome: list[JobResult],
    failure: list[BaseException],
) -> None:
    try:
        outcome.append(run(config))
    except BaseException as error:  # noqa: BLE001 -- carried over to the main thread, which raises it
        failure.append(error)


def _show(home: Home, run: str, thread: threading.Thread, console: Console) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=False) as bar:
        task = bar.add_task("starting workers", total=None)
        while thread.is_alive():
            now = read_progress(home.run(run))
            if now is not None:
                loss = "" if now.loss is None else f" · loss {now.loss:.3f}"
                text = f"{now.phase} · attempt {now.attempt} · {now.refused} refused · {now.rollbacks} rollbacks{loss}"
                bar.update(task, total=now.total, completed=now.position, description=text)
            thread.join(timeout=_POLL_S)
