"""What watches the workers from Ray Train's controller: deaths, standing still, and room that is lost."""

from __future__ import annotations

from typing import Any

from ray.train import UserCallback
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2.api.exceptions import WorkerGroupError

from failsoft.health.clock import SystemClock
from failsoft.training.progress import PositionMark
from failsoft.training.ray_room import rooms_here
from failsoft.training.ray_settings import RaySettings, first_lines
from failsoft.training.survival.room import ROOM_LOST, fitting_when_idle, need_of
from failsoft.training.survival.watch_policy import Stillness


class RoomLostError(RuntimeError):
    """Raised in the controller; ends the attempt, so that the supervisor chooses another number of workers."""


class SeesDeaths(UserCallback):
    """Says in the ledger when Ray's controller has seen workers die: from here on a restart is under way.

    When the nodes that are left can't hold as many workers again, Ray's own restart would wait for them in vain; then
    the attempt ends here.
    """

    def __init__(self, settings: RaySettings) -> None:
        self._settings = settings

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Called in the controller's process, before it starts others.

        Raises:
            RoomLostError: the cluster could not hold the same number of workers even if it were idle.
        """
        ledger = self._settings.open_ledger()
        why = next((first_lines(error) for error in worker_exceptions.values()), "")
        ledger.record("workers_lost", why, ranks=sorted(worker_exceptions))
        rooms = rooms_here()
        if rooms is None:
            return
        settings = self._settings
        fit = fitting_when_idle(rooms, need_of(settings.need()), settings.excluded)
        if fit < settings.workers:
            said = f"the nodes that are left hold {fit} of {settings.workers} workers at most"
            ledger.record(ROOM_LOST, said, fit=fit, workers=settings.workers)
            raise RoomLostError(said)


class SecondLine(WorkerGroupCallback):
    """Has a group of workers started again that stands still although no watchdog of its own has ended it."""

    def __init__(self, settings: RaySettings) -> None:
        self._settings = settings
        self._stillness = Stillness(settings.watch.silence_s)
        self._next_s = 0.0

    def before_worker_group_start(self, worker_group_context: Any) -> None:
        """Called in the controller's process; another group, another patience."""
        self._stillness = Stillness(self._settings.watch.silence_s)

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        """Called in the controller's process at each poll; looks once a second, for the file may lie far away."""
        now_s = SystemClock().monotonic_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + 1.0
        position = PositionMark(self._settings.folder).read()
        if self._stillness.look(position, now_s):
            limit_s = self._settings.watch.silence_s
            why = f"no batch began for {limit_s:g} s after batch {position}, and no watchdog said so"
            self._settings.open_ledger().record("hang", why, position=position, by="controller")
            raise WorkerGroupError(why, dict.fromkeys(range(self._settings.workers), TimeoutError(why)))
