"""What the time of a run is made of: its parts, the stages between which events move it, stretches, and mishaps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SUPERVISOR = "supervisor"
"""Who says an event ``by`` this of a run's end, since no worker lived to do so."""


class Part(StrEnum):
    """What a stretch of time went to; defined in :mod:`failsoft.training.accounting.goodput`."""

    PRODUCTIVE = "productive"
    LOST = "lost to restarts"
    UNDONE = "undone by rollbacks"
    REFUSED = "refused batches"
    STALL = "checkpoint stall"
    VALIDATION = "validation"
    DETECT = "detect a death"
    BACKOFF = "back-off"
    START = "start workers"
    LOAD = "load state"
    UNSPLIT = "restart, not told apart"
    UNKNOWN = "unknown"


class Stage(StrEnum):
    """Where a run stands while its events are read."""

    WORKING = "working"
    DETECTING = "detecting"
    WAITING = "waiting"
    STARTING = "starting"
    LOADING = "loading"
    OVER = "over"


NEXT = {
    "attempt_began": Stage.STARTING,
    "workers_up": Stage.LOADING,
    "run_started": Stage.WORKING,
    "planned_kill": Stage.DETECTING,
    "worker_failed": Stage.DETECTING,
    "hang": Stage.DETECTING,
    "peer_lost": Stage.DETECTING,
    "surroundings_failed": Stage.DETECTING,
    "preempted": Stage.DETECTING,
    "workers_lost": Stage.STARTING,
    "attempt_failed": Stage.WAITING,
    "run_finished": Stage.OVER,
    "run_stopped": Stage.OVER,
    "run_left": Stage.OVER,
}
"""The stage after an event; other events change none."""
AFTER_A_DEATH = frozenset({"attempt_began", "workers_up", "run_started", "workers_lost", "attempt_failed"})
"""Events before which workers at work must have died."""
BEGINNINGS = frozenset({"attempt_began", "workers_up", "run_started"})
"""Events by which a run that was over begins again."""
BLIND = frozenset({"workers_up", "run_started"})
"""Those of them that tell neither when the death was seen nor when others were started."""
LOOKS = frozenset({"validated", "validation_failed", "validation_broken_off"})
"""Events of a look at the model, which took its time whatever came of it."""
ALIVE = frozenset({"batch_refused", "rolled_back", "resumed", "checkpoint_handed_over"}) | LOOKS
"""Events of a run at work."""
PLAIN = {
    Stage.WORKING: Part.PRODUCTIVE,
    Stage.DETECTING: Part.DETECT,
    Stage.WAITING: Part.START,
    Stage.STARTING: Part.START,
    Stage.LOADING: Part.LOAD,
}
"""What time in a stage goes to, unless an event says better."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Some time of a run. Microseconds count from the run's first event, without what lies outside the wall time."""

    begin_us: int
    end_us: int
    part: Part
    first: int = 0
    """Position at its beginning; global batches."""
    last: int = 0
    """Position at its end."""
    incident: int | None = None

    @property
    def length_us(self) -> int:
        """How long it took."""
        return self.end_us - self.begin_us


@dataclass(frozen=True, kw_only=True)
class Mishap:
    """Something that cost time: a restart, or a rollback."""

    kind: str
    """``restart`` or ``rollback``."""
    at_us: int
    at_s: float
    """Wall time of the event that told it."""
    position: int
    why: str
    batches: int | None = None
    """Batches worked on again after a restart, or updates undone by a rollback."""
