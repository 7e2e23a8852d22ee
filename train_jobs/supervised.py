"""A run from its first attempt to its result, whatever holds its workers."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

from failsoft.artifacts.home import Home
from failsoft.errors import ArtifactError, DriverLostError, FailsoftError, PreemptedError
from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.letters.requeue import read_requeue
from failsoft.training.progress import Phase, ProgressFile
from failsoft.training.survival.notice import read_notice
from failsoft.training.survival.room import WorkerNeed, WorkerRange
from failsoft.training.survival.supervise import RestartPolicy
from train_jobs.attempts import Attempts
from train_jobs.config import JobConfig
from train_jobs.crew import Crew, CrewPlan
from train_jobs.driver import Driver
from train_jobs.prepared import prepared_corpus, refuse_foreign
from train_jobs.result import JobResult
from train_jobs.storage import Storage

_FINISHES = 3
"""Tries to evaluate and publish; more deaths than that are no accident."""


def carry_through(
    config: JobConfig,
    driver: Driver,
    *,
    clock: Clock,
    say: Callable[[str], object] = lambda _said: None,
    heard: Callable[[], bool] = lambda: False,
) -> JobResult:
    """Attempt after attempt until all batches are consumed, then evaluation and release.

    Args:
        config: the job; its ``home`` is absolute.
        driver: holds the workers.
        clock: waits.
        say: told in a sentence what is waited for.
        heard: whether this process itself was told to leave, which it can't pass on while storage is away.

    Raises:
        FailsoftError: whatever stopped the run; the message says what to do.
    """
    home = Home.find(config.home)
    folder = home.run(config.run)
    refuse_foreign(folder)
    progress, plan, rng = ProgressFile(folder, clock), plan_of_crew(config, home, clock), random.Random(config.seed)
    told: Callable[[], bool] = lambda: heard() or read_notice(folder) is not None  # noqa: E731 -- asked while waiting
    storage = storage_of(config, plan, clock=clock, rng=rng, say=say, told=told)
    crew = Crew(driver, plan, clock=clock, told=told, say=say)
    attempts = Attempts(
        home=home, run=config.run, clock=clock, total_batches=lambda: planned(config, clock), storage=storage
    )
    try:
        attempts.until_done(crew.run_once, policy=RestartPolicy(backoff=config.backoff), rng=rng)
        result = _finished(driver, storage, config, clock, rng)
    except FailsoftError:
        with suppress(OSError):  # the error says more than a file on storage that is away
            progress.turn(Phase.STOPPED)
        raise
    storage.reached(lambda: progress.turn(Phase.FINISHED))
    return result


def storage_of(
    config: JobConfig,
    plan: CrewPlan,
    *,
    clock: Clock,
    rng: random.Random,
    say: Callable[[str], object],
    told: Callable[[], bool],
) -> Storage:
    """The run's storage, with the patience that the job has for it."""
    return Storage(
        plan.folder,
        clock=clock,
        rng=rng,
        ledger=plan.ledger,
        backoff=config.backoff,
        policy=config.storage,
        say=say,
        told=told,
    )


def planned(config: JobConfig, clock: Clock) -> int | None:
    """Global batches of the run, those that people put back on its list included; None before it is prepared."""
    home = Home.find(config.home)
    try:
        prepared = prepared_corpus(home, config.run, clock).newest()
    except (ArtifactError, OSError):  # torn, or out of reach: who prepares the run says so
        prepared = None
    if prepared is None:
        return None
    return int(prepared.manifest.meta["total_batches"]) + len(read_requeue(home.run(config.run)))


def plan_of_crew(config: JobConfig, home: Home, clock: Clock) -> CrewPlan:
    """What the job may have of workers."""
    return CrewPlan(
        workers=WorkerRange.of(config.workers),
        need=WorkerNeed(resources=config.need()),
        folder=home.run(config.run),
        ledger=Ledger(home.ledger, clock, side=Side.TRAINING, subject=config.run),
        resize=config.resize,
    )


def _finished(driver: Driver, storage: Storage, config: JobConfig, clock: Clock, rng: random.Random) -> JobResult:
    """The end of a job is as safe to repeat as its attempts are: a release is published whole or not at all.

    Before each try storage is waited for, so that a mount that is away spends none of them.
    """
    for failures in range(1, _FINISHES):
        try:
            return storage.reached(driver.finish)
        except DriverLostError:
            clock.sleep_s(config.backoff.wait_s(failures, rng))
            if read_notice(Home.find(config.home).run(config.run)) is not None:
                raise PreemptedError("told to leave before the release; the same command publishes it") from None
    return storage.reached(driver.finish)
