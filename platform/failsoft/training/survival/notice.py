"""Notice to leave: how a worker or a run hears that its machine will be taken away, and until when.

Ways for a word to come, all into one :class:`Notice` that only remembers:

* SIGTERM or SIGUSR1 to a worker (Slurm's ``--signal=USR1@60``, an operator) or to the driver (Kubernetes, scancel);
* a file in the run's folder: ``failsoft preempt RUN`` drops it, as a preStop hook or a batch script that traps signals;
* Ray's drain notice, which the adapter to Ray looks for.

Whoever hears it first, all ranks leave after the same batch (see :mod:`failsoft.training.survival.agreement`). A
process that left for a notice exits with ``EXIT_PREEMPTED``, whether or not it could save in time: what it saved is
on disk, and the same command goes on from there.
"""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from failsoft.artifacts.asides import replace_whole
from failsoft.errors import ConfigError
from failsoft.health.clock import Clock
from failsoft.health.json_object import json_value
from failsoft.health.ledger import Ledger
from failsoft.training.survival.saving_asked import Wishes, read_wishes, withdraw_wishes

EXIT_PREEMPTED = 143
"""128 + SIGTERM: what schedulers expect of a process that was asked to end and did."""
NOTICE_NAME = "leave.json"
RESIZE_NAME = "resize.json"
"""The supervisor's own notice: save and leave, to go on at once with more workers."""
_RESIZE_GRACE_S = 600.0
"""Nobody kills the workers for a planned resize, so they may take their time to save."""
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_LOOK_S = 0.1


@dataclass(frozen=True, kw_only=True)
class NoticePolicy:
    """How long a notice leaves."""

    grace_s: float = 25.0
    """From hearing a word without a time of its own to the end, saved or not: 5 s less than Kubernetes, torchrun and
    Slurm (``KillWait``) grant before they kill."""

    def __post_init__(self) -> None:
        """Refuse a notice that leaves no time."""
        if not 0.0 < self.grace_s < math.inf:
            raise ConfigError(f"grace_s is {self.grace_s}; use the seconds that the scheduler grants, less a few")


@dataclass(frozen=True, kw_only=True)
class Word:
    """One notice."""

    why: str
    grace_s: float | None = None
    """Seconds from hearing it to the end; None: as the policy says."""
    whole_run: bool = False
    """The run shall end, not only move to other workers."""


class Notice:
    """Whether this process was told to leave. Written from signal handlers: remembers the first word, does no more."""

    def __init__(self) -> None:
        self.heard: Word | None = None
        self.closed = False
        """Nobody waits for words any more; signals take their former way."""
        self.wishes = Wishes()
        """What this process was asked to save, to go on afterwards."""

    def give(self, word: Word) -> None:
        """Tell; the first word stays."""
        if self.heard is None:
            self.heard = word


Handler = Callable[[int, FrameType | None], Any] | int | None


def listen(notice: Notice, signals: Sequence[signal.Signals] = SIGNALS) -> dict[signal.Signals, Handler]:
    """Turn signals to this process into words; to be called in its main thread, and once for each notice.

    Returns:
        The former handlers. They get the signals again once the notice is closed, for then the process must end.

    Raises:
        ConfigError: called in another thread, which Python does not let change handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError("signals can only be listened to in a process's main thread; call listen() there")
    former: dict[signal.Signals, Handler] = {number: signal.getsignal(number) for number in signals}

    def hear(number: int, frame: FrameType | None) -> None:
        before = former[signal.Signals(number)]
        if not notice.closed:
            notice.give(Word(why=f"{signal.Signals(number).name} to process {os.getpid()}"))
        elif callable(before):
            before(number, frame)
        elif before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in signals:
        signal.signal(number, hear)
    return former


@contextmanager
def listening(notice: Notice) -> Iterator[None]:
    """Listen for the time of the block; in another thread than the main one, where no signal comes, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = listen(notice)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def drop_notice(run_folder: Path, why: str) -> Path:
    """Tell a run, by a file in its folder, to save and end; returns the file."""
    return _drop(run_folder / NOTICE_NAME, why)


def drop_resize(run_folder: Path, why: str) -> Path:
    """Ask the workers of a run, not the run, to save and leave; returns the file."""
    return _drop(run_folder / RESIZE_NAME, why)


def _drop(path: Path, why: str) -> Path:
    replace_whole(path, json.dumps({"why": why}).encode())
    return path


def read_notice(run_folder: Path) -> Word | None:
    """What a run was told by file; None when nothing lies there (or storage is away, which is no notice)."""
    why = _read(run_folder / NOTICE_NAME)
    return None if why is None else Word(why=why, whole_run=True)


def read_resize(run_folder: Path) -> Word | None:
    """What the workers were asked by file for a planned resize; None when they were not."""
    why = _read(run_folder / RESIZE_NAME)
    return None if why is None else Word(why=why, grace_s=_RESIZE_GRACE_S)


def _read(path: Path) -> str | None:
    try:
        return str(json_value(path.read_text("utf-8"))["why"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def withdraw_notice(run_folder: Path) -> None:
    """A run that starts is wanted: whatever it was told before is over."""
    _withdraw(run_folder / NOTICE_NAME)


def withdraw_resize(run_folder: Path) -> None:
    """Workers that start are to stay."""
    _withdraw(run_folder / RESIZE_NAME)


def _withdraw(path: Path) -> None:
    """Storage that became read-only refuses to remove even what is not there, and that is no reason to stop."""
    if path.exists():
        path.unlink(missing_ok=True)


@contextmanager
def passing_on(notice: Notice, run_folder: Path) -> Iterator[None]:
    """For the time of the block, what this process hears its run is told by file, wherever the workers are.

    What the run was told before is withdrawn first: a run that starts is wanted.
    """
    withdraw_notice(run_folder)
    withdraw_wishes(run_folder, read_wishes(run_folder))
    with carrying(notice, run_folder):
        yield


@contextmanager
def carrying(notice: Notice, run_folder: Path) -> Iterator[None]:
    """As :func:`passing_on`, in a process that serves a run which another one has started: nothing is withdrawn."""
    over = threading.Event()

    def carry() -> None:
        while not over.wait(_LOOK_S):
            if notice.heard is None:
                continue
            try:
                drop_notice(run_folder, notice.heard.why)
            except OSError:  # storage that refuses just now; nobody says it twice, so it is tried again
                continue
            return

    carrier = threading.Thread(target=carry, name="failsoft-notice", daemon=True)
    carrier.start()
    try:
        yield
    finally:
        over.set()
        carrier.join()


class Deadline:
    """Looks after one worker's notice: finds words in the run's folder, notes what is heard, and ends a late leaver.

    It also finds what the run is asked to save.

    Call :meth:`look` now and then (the watchdog does). A worker may be kept from leaving by a peer that never answers;
    it goes by itself before it is killed, so that the ledger says why nothing was saved.
    """

    def __init__(
        self,
        notice: Notice,
        run_folder: Path,
        *,
        policy: NoticePolicy,
        ledger: Ledger,
        clock: Clock,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._notice = notice
        self._folder = run_folder
        self._policy = policy
        self._ledger = ledger
        self._clock = clock
        self._end = end
        self._heard_s: float | None = None

    def look(self) -> None:
        """Look once."""
        if self._notice.heard is None:
            word = read_notice(self._folder) or read_resize(self._folder)
            if word is not None:
                self._notice.give(word)
        if self._notice.heard is not None:
            self._hurry(self._notice.heard)
        for wish in read_wishes(self._folder):
            self._notice.wishes.give(wish)

    def _hurry(self, word: Word) -> None:
        grace_s = self._policy.grace_s if word.grace_s is None else word.grace_s
        if self._heard_s is None:
            self._heard_s = self._clock.monotonic_s()
            self._ledger.record("notice_heard", word.why, grace_s=grace_s, process=os.getpid())
        elif not self._clock.monotonic_s() - self._heard_s <= grace_s:
            why = f"{word.why}; {grace_s:g} s were not enough to save and leave, the checkpoint before stands"
            self._ledger.record("notice_missed", why, grace_s=grace_s, process=os.getpid())
            self._end(EXIT_PREEMPTED)


def stay_through_notices(_worker_id: int = 0) -> None:
    """Let a loader's worker process live on when the whole process group is told to leave; for ``worker_init_fn``.

    Without it, ``kill -TERM -PGID`` (and each scheduler that signals all processes) ends the loader's workers first,
    and the training process dies of its next batch instead of saving. Only a SIGTERM from the training process itself,
    which is how a loader shuts down, ends this one. Linux only, as the loader's own handling of signals.
    """
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # threads made from here on inherit it
    parent = os.getppid()

    def wait() -> None:
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
            pass
        os._exit(0)

    threading.Thread(target=wait, name="failsoft-notice", daemon=True).start()
