"""The attempts of a run, as its supervisor sees them: from checkpoints and ledger, never from Ray."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from failsoft.artifacts.home import Home
from failsoft.artifacts.store import Artifact
from failsoft.errors import NoProgressError, PreemptedError, training_error
from failsoft.health.clock import Clock
from failsoft.health.ledger import Event, Ledger, Side, parse_event
from failsoft.health.ledger_files import Tail
from failsoft.training.checkpoints.inspection import is_healthy, position_of
from failsoft.training.checkpoints.writer_succession import until_free
from failsoft.training.progress import PositionMark
from failsoft.training.summary import SUPERVISOR
from failsoft.training.survival.growth import RESIZE_ASKED
from failsoft.training.survival.notice import read_notice
from failsoft.training.survival.room import ROOM_LOST, WORKERS_CHOSEN
from failsoft.training.survival.supervise import (
    CONTROLLER_FAILED,
    CONTROLLER_LOST,
    DRIVER_LOST,
    Attempt,
    Failure,
    RestartPolicy,
    began_anew,
    last_beginning,
    supervise,
)
from train_jobs.storage import Storage

_WRITER_S = 60.0
"""A killed worker's writer finishes what it has begun; so long it is waited for before progress is judged."""
_LEAVING = frozenset({"notice_heard", "notice_missed", "preempted"})
"""Events of workers that were told to leave; also of those who then died on the way."""
_BUGS = frozenset({"worker_failed", CONTROLLER_FAILED})
_LEADERLESS = frozenset({CONTROLLER_LOST, DRIVER_LOST})

RunOnce = Callable[[], str | None]
"""Starts workers and waits for their end; None when they ended by themselves, else what ended them."""
Found = TypeVar("Found")


class Attempts:
    """Runs attempts until all batches are consumed.

    Args:
        home: root of all files.
        run: name of the run.
        clock: waits.
        total_batches: global batches of the run; None while nobody knows.
        storage: waits for the run's storage while it is away; None: what that raises is raised.
    """

    def __init__(
        self,
        *,
        home: Home,
        run: str,
        clock: Clock,
        total_batches: Callable[[], int | None],
        storage: Storage | None = None,
    ) -> None:
        self._storage = storage
        self._home = home
        self._run = run
        self._clock = clock
        self._total_batches = total_batches
        self._ledger = Ledger(home.ledger, clock, side=Side.TRAINING, subject=run)
        self._tail, self._heard = Tail(home.ledger), list[Event]()

    def until_done(self, run_once: RunOnce, *, policy: RestartPolicy, rng: random.Random) -> None:
        """Supervise ``run_once``; a run that has consumed all its batches needs no attempt.

        Raises:
            TrainingError: the breaker stopped the run with a diagnosis.
            NoProgressError: a deterministic bug, or three attempts without progress.
            PreemptedError: the run was told to leave.
            StorageAwayError: its storage was away for too long between two attempts.
        """
        if not self._there(lambda: self._complete(self._reached())):
            self._supervise(run_once, policy, rng)
        self._there(self._see_the_end)

    def _there(self, work: Callable[[], Found]) -> Found:
        return work() if self._storage is None else self._storage.reached(work)

    def _complete(self, reached: int) -> bool:
        total = self._total_batches()
        return total is not None and reached >= total

    def _supervise(self, run_once: RunOnce, policy: RestartPolicy, rng: random.Random) -> None:
        try:
            supervise(
                lambda number: self._one(number, run_once),
                policy=policy,
                clock=self._clock,
                rng=rng,
                on_failed=self._failed,
                told=self._told,
            )
        except PreemptedError as error:
            self._ledger.record("run_left", str(error), position=self._last_seen(), by=SUPERVISOR)
            raise
        except NoProgressError as error:
            self._ledger.record(
                "run_stopped", str(error), position=self._last_seen(), by=SUPERVISOR, error=type(error).__name__
            )
            raise

    def _see_the_end(self) -> None:
        """The last words of a run whose workers died after its last checkpoint, so that its story has an end."""
        newest = self._newest()
        if newest is not None and all(event.kind != "run_finished" for event in self._events()):
            meta = {"position": newest.manifest.meta["position"], "step": newest.manifest.meta.get("step", 0)}
            why = "all batches are consumed; the workers died before they could say so"
            self._ledger.record("run_finished", why, **meta, by=SUPERVISOR)

    def _one(self, number: int, run_once: RunOnce) -> Attempt:
        checkpoint, before = self._there(lambda: (self._reached(), self._events()))
        self._ledger.record("attempt_began", "workers are started next", attempt=number)
        error = run_once()
        until_free(self._home.checkpoints(self._run, self._clock).root, self._clock, patience_s=_WRITER_S)
        return self._there(lambda: self._ended(number, error, checkpoint, before))

    def _ended(self, number: int, error: str | None, checkpoint: int, before: list[Event]) -> Attempt:
        news = self._events()[len(before) :]
        self._raise_diagnosis(news)
        said = _said_by_its_workers(news)
        reached, leaving = self._reached(), [event.why for event in said if event.kind in _LEAVING]
        if leaving:
            error = leaving[-1]
        return Attempt(
            number=number,
            finished=self._complete(reached),
            began=max(checkpoint, last_beginning(before)),
            reached=max(reached, last_beginning(news)),
            error=error or "the workers ended without a word before all batches were consumed",
            failures=tuple(_failure(event) for event in said if event.kind in _BUGS),
            preempted=bool(leaving),
            resized=bool(leaving) and any(event.kind == RESIZE_ASKED for event in news),
            room_lost=any(event.kind == ROOM_LOST for event in news),
            told_to_leave=self._told(),
            forgot=began_anew(news, checkpoint=checkpoint),
        )

    def _told(self) -> bool:
        """By whatever way, a notice to the whole run ends as a file in its folder."""
        return read_notice(self._home.run(self._run)) is not None

    def _failed(self, attempt: Attempt, wait_s: float, why: str) -> None:
        data = {"attempt": attempt.number, "error": attempt.error, "wait_s": wait_s, "progressed": attempt.progressed}
        mark = PositionMark(self._home.run(self._run))
        data |= {"last_seen_s": mark.last_set_s(), "position": mark.read()}
        self._ledger.record("attempt_failed", why, **data)

    def _reached(self) -> int:
        newest = self._newest()
        return 0 if newest is None else int(newest.manifest.meta["position"])

    def _last_seen(self) -> int:
        try:
            return self._reached()
        except OSError:  # the end of a run waits for no storage
            return 0

    def _newest(self) -> Artifact | None:
        """Read byte by byte: nobody can go on from a torn one, nor release it.

        Raises:
            OSError: nothing can be read, and there is somebody to wait for the storage; else None stands for that.
        """
        store = self._home.checkpoints(self._run, self._clock)
        try:
            return store.newest(order=position_of, accept=is_healthy, on_damage=self._tell_damage)
        except OSError as error:
            if self._storage is not None:
                raise
            # workers try for themselves, and a failed attempt is waited for
            self._ledger.record("checkpoints_unreadable", str(error))
            return None

    def _tell_damage(self, name: str, why: str) -> None:
        self._ledger.record("checkpoint_quarantined", why, name=name)

    def _events(self) -> list[Event]:
        """Of this run so far. Each line is read once: a ledger of a year holds millions, most of them of others."""
        try:
            for lines in self._tail.file_by_file():
                self._heard += filter(self._is_ours, filter(None, map(parse_event, lines)))
        except OSError:
            self._tail.close()
            self._tail, self._heard = Tail(self._home.ledger), []
            raise
        self._tail.close()
        return self._heard.copy()

    def _is_ours(self, event: Event) -> bool:
        return event.side is Side.TRAINING and event.subject == self._run

    def _raise_diagnosis(self, news: list[Event]) -> None:
        """A worker's diagnosis comes by way of the ledger, since Ray hands on no error's kind."""
        stops = [event for event in news if event.kind == "run_stopped"]
        if stops:
            raise training_error(str(stops[-1].data.get("error", "")), stops[-1].why)


def _said_by_its_workers(news: list[Event]) -> list[Event]:
    """What an attempt's own workers said for reasons of their own.

    When what leads workers dies, Ray ends them by a SIGTERM, which is no notice, and what they fail of then is no bug;
    the next attempt has begun by the time they say so, but hasn't chosen its workers yet.
    """
    if any(event.kind in _LEADERLESS for event in news):
        return []
    chosen = [number for number, event in enumerate(news) if event.kind == WORKERS_CHOSEN]
    return news[chosen[0] :] if chosen else news


def _failure(event: Event) -> Failure:
    rank = int(event.data.get("rank", 0))
    return Failure(error=str(event.data["error"]), position=int(event.data["position"]), rank=rank)
