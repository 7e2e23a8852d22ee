"""A run in numbers, from its ledger alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from failsoft.health.ledger import Event, Side
from failsoft.training.accounting.degraded import Degraded, degraded
from failsoft.training.accounting.goodput import account
from failsoft.training.accounting.stretches import SUPERVISOR

__all__ = ["SUPERVISOR", "RunSummary", "summarise"]


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What a run went through. What a restart undid does not count; what it met again counts once."""

    batches_total: int = 0
    steps_applied: int = 0
    batches_refused: int = 0
    rollbacks: int = 0
    steps_undone: int = 0
    """Updates that rollbacks took back."""
    worker_deaths: int = 0
    """Groups of workers that ended before their time."""
    batches_repeated: int = 0
    """Batches worked on again after restarts."""
    resume_times_s: tuple[float, ...] = ()
    """From each planned kill to the first update of the next group of workers, back-off included."""
    checkpoints: int = 0
    quarantined: int = 0
    copied: int = 0
    """Checkpoints that are on the remote store, too, or were there."""
    copies_failed: int = 0
    """Tries to copy one there that failed."""
    attempts: int = 0
    took_s: float = 0.0
    """From the first start to the end, wall time."""
    finished: bool = False
    ettr: float | None = None
    """Productive time over wall time, 0..1; None before any time has passed."""
    parts_s: Mapping[str, float | None] = field(default_factory=dict)
    """Where the wall time went, as :mod:`failsoft.training.accounting.goodput` defines its parts; None: not known."""
    degraded: Degraded = field(default_factory=Degraded)
    """Which fraction of it ran degraded, and how."""

    @property
    def dropped_fraction(self) -> float | None:
        """Refused batches of all; None before any batch."""
        return self.batches_refused / self.batches_total if self.batches_total else None


def summarise(
    events: Iterable[Event], *, run: str, seen_at_s: float | None = None, seen_position: int | None = None
) -> RunSummary:
    """Add up what the ledger says about one run.

    Args:
        events: of a ledger, in order of writing; those of other runs are passed over.
        run: its name.
        seen_at_s: wall time at which it was last seen at work, for one that goes on.
        seen_position: the batch that it was at by then.
    """
    mine = [event for event in events if event.side is Side.TRAINING and event.subject == run]
    starts = _of(mine, "run_started")
    finishes = _of(mine, "run_finished")
    refused, rollbacks = _standing(mine, "batch_refused"), _standing(mine, "rolled_back")
    ends = [*finishes, *_of(mine, "run_stopped")]
    time = account(mine, run=run)
    own_ends = [event for event in ends if event.data.get("by") != SUPERVISOR]
    return RunSummary(
        batches_total=starts[-1].count("total_batches") if starts else 0,
        steps_applied=finishes[-1].count("step") if finishes else 0,
        batches_refused=len(refused),
        rollbacks=len(rollbacks),
        steps_undone=sum(event.count("undone_steps") for event in rollbacks.values()),
        worker_deaths=max(0, len(starts) - len(own_ends)),
        batches_repeated=sum(event.count("repeated_batches") for event in starts),
        resume_times_s=tuple(_resume_times(mine)),
        checkpoints=len({str(event.data.get("name")) for event in _of(mine, "checkpoint_published")}),
        quarantined=len(_of(mine, "checkpoint_quarantined")),
        copied=len({str(event.data.get("name")) for event in _of(mine, "checkpoint_mirrored")}),
        copies_failed=len(_of(mine, "checkpoint_mirror_failed")),
        attempts=len(starts),
        took_s=ends[-1].at_s - starts[0].at_s if starts and ends else 0.0,
        finished=bool(finishes),
        ettr=time.ettr,
        parts_s=time.to_json()["parts_s"] if time.wall_micros else {},
        degraded=degraded(mine, seen_at_s=seen_at_s, seen_position=seen_position),
    )


def _of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event.kind == kind]


def _standing(events: list[Event], kind: str) -> dict[tuple[int, int], Event]:
    """The events of a kind, without those that a restart from before them undid; a batch by its last verdict.

    The key is the rollbacks until then (for a batch: 0) and the position. A rollback whose stretch was met again undid
    the verdicts on it; they were spoken anew.
    """
    batches = kind == "batch_refused"
    found: dict[tuple[int, int], Event] = {}
    for event in events:
        if event.kind == "run_started":
            found = {key: earlier for key, earlier in found.items() if _before(earlier, event, own=int(batches))}
        elif batches and event.kind == "rolled_back" and event.data.get("replayed_from") is not None:
            found = {key: earlier for key, earlier in found.items() if key[1] < event.count("replayed_from")}
        elif event.kind == kind:
            found[0 if batches else event.count("rollbacks"), event.count("position")] = event
    return found


def _before(event: Event, start: Event, *, own: int) -> bool:
    """Whether an event was before the moment that a start goes on from. ``own``: 1 if it comes before its position."""
    rollbacks, then = event.count("rollbacks"), start.count("rollbacks")
    if rollbacks != then:
        return rollbacks < then
    return event.count("position") + own <= start.count("position")


def _resume_times(events: list[Event]) -> Iterable[float]:
    killed_at_s: float | None = None
    for event in events:
        if event.kind == "planned_fault" and event.data.get("fault") == "kill_worker":
            killed_at_s = event.at_s if killed_at_s is None else killed_at_s
        elif event.kind == "resumed" and killed_at_s is not None:
            yield event.at_s - killed_at_s
            killed_at_s = None
