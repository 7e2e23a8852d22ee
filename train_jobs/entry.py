"""The job's entry point: a small supervisor process that outlives whatever holds the workers.

The supervisor loads neither Ray nor torch. It holds the run's lock, chooses the number of workers, waits (back-off,
room, a Ray to connect to, storage) and starts a child, the driver, that connects to Ray and carries the attempts out.
A driver that is killed, that stands still (``driver_watch``) or that Ray fails costs one attempt. When the supervisor
is killed, the driver ends with it and the lock is free.

What is above the supervisor (systemd, ``ray job submit`` again, RayJob, Slurm) starts the same command again, and the
run goes on from its newest checkpoint; after the loss of Ray's head that is all there is to do. By exit status:

* 0 the run is finished, 143 it was told to leave (requeue it when its machine is back);
* 1 something outside of the run: no Ray for ``ray_patience_s``, its storage away for longer than ``storage`` allows, a
  full disk, a wrong argument. Start it again, but not for ever: ``Restart=on-failure`` with ``RestartSec=30`` and
  ``StartLimitBurst=5``, RayJob ``backoffLimit: 5``;
* 3 and 4 the run was stopped with a diagnosis (too much of the data refused; nothing helped). Starting it again would
  end the same way: ``RestartPreventExitStatus=3 4``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.health.clock import Clock, SystemClock
from failsoft.health.retention import read_retention
from failsoft.training.checkpoints.driver_lock import sole_driver
from failsoft.training.run_removal import let_go
from failsoft.training.survival.notice import Notice, Word, listening, passing_on
from train_jobs.child_driver import ChildDriver
from train_jobs.config import JobConfig
from train_jobs.result import JobResult
from train_jobs.supervised import carry_through


def supervise_job(
    config: JobConfig,
    *,
    notice: Notice,
    say: Callable[[str], object] = lambda _said: None,
    clock: Clock | None = None,
) -> JobResult:
    """Train, evaluate and publish with the workers held by a child process.

    Args:
        config: the job.
        notice: what this process hears is passed on to the run; see :func:`hearing`.
        say: told in a sentence what is waited for.
        clock: waits; None: the machine's.

    Raises:
        ConfigError: another process is training this run; nothing was touched.
        FailsoftError: whatever stopped the run; the message says what to do.
    """
    home, clock = Home.find(config.home), clock or SystemClock()
    config = replace(config, home=home.root)
    folder = home.run(config.run)
    with (
        sole_driver(folder),
        passing_on(notice, folder),
        ChildDriver(config, clock=clock, say=say) as driver,
    ):
        _let_go(home, folder, clock=clock, say=say)
        return carry_through(config, driver, clock=clock, say=say, heard=lambda: notice.heard is not None)


def _let_go(home: Home, folder: Path, *, clock: Clock, say: Callable[[str], object]) -> None:
    """What is past its time; settings that can't be meant, or a disk that refuses, hold no run up."""
    try:
        cut = read_retention(home.root).cut(clock.wall_s())
        let_go(folder, letters_s=cut.letters_s, stacks_s=cut.stacks_s)
    except (ConfigError, OSError) as error:
        say(f"old letters and stacks stay: {error}")


@contextmanager
def hearing(notice: Notice) -> Iterator[None]:
    """Turn SIGTERM, SIGUSR1 and the first Ctrl-C into a word to the run: save and leave. A second Ctrl-C interrupts.

    To be entered in the main thread; elsewhere it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupted(number: int, frame: FrameType | None) -> None:
        if notice.heard is not None:
            signal.default_int_handler(number, frame)
        notice.give(Word(why="Ctrl-C"))

    former = signal.signal(signal.SIGINT, interrupted)
    try:
        with listening(notice):
            yield
    finally:
        signal.signal(signal.SIGINT, former)
