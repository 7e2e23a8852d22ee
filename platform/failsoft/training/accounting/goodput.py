"""Where the time of a run went, from its ledger alone; the parts add up to the wall time to the microsecond.

*Wall time* runs from the run's first event to its last (or until it was last seen at work). Two things lie outside of
it and are told apart: the time between an end of the run and its next start by people (``stood_s``), and by how much
the wall clock went back between two events (``clock_set_back_s``; such a stretch counts 0). A jump forward can't be
told from work. Every moment belongs to one part:

- *productive*: work on batches that stand at the end, the first batch after a restart included;
- *lost to restarts*: work since the checkpoint that a restart went back to. It is counted once, when it was done in
  vain: doing it again is productive. Checkpoints leave events, so this needs no guess; where a stretch without events
  straddles the point, it is cut in proportion to the batches;
- *undone by rollbacks*: the same since the snapshot that a rollback went back to;
- *refused batches*: forward and backward of batches that were refused;
- *checkpoint stall*: the training thread waited for a checkpoint to be taken over;
- *validation*: looks at the model on samples that it does not learn from, failed ones included;
- *detect a death* (from the last batch begun before the death, as its position file tells, or from the
  error that a worker noted, until somebody acted), *back-off* (the wait before another attempt), *start workers*
  (until all of them stand) and *load state* (until it is back): a restart by its parts. The first start of a run has
  the last two as well;
- *restart, not told apart*: the same, where the ledger lacks the events between (a retry inside Ray, old ledgers);
- *unknown*: workers died and nobody knows when. So productive time is a lower bound where this is not 0.

ETTR (effective training time ratio) is productive over wall time. A part that can't be known from the ledger at hand
is None, never 0: its time is within *not told apart* or *unknown* then, or (refused, stall) within *productive*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from failsoft.health.ledger import Event, Side
from failsoft.training.accounting.stretches import Mishap, Part, Stage, Stretch
from failsoft.training.accounting.timeline import Timeline

_RESTART = (Part.DETECT, Part.START, Part.LOAD)
_DOWN = frozenset({*_RESTART, Part.BACKOFF, Part.UNSPLIT, Part.UNKNOWN})


@dataclass(frozen=True, kw_only=True)
class Incident:
    """A restart or a rollback, and what it cost."""

    kind: str
    """``restart`` or ``rollback``."""
    at_s: float
    """Wall time at which it was told."""
    after_s: float
    """On the run's own time, from its first event."""
    position: int
    """Global batches consumed by then."""
    why: str
    batches: int | None
    """Batches worked on again (restart), updates undone (rollback); None while a restart has not come back."""
    micros: Mapping[Part, int | None]
    """Microseconds by part; None: not known."""

    @property
    def cost_s(self) -> float:
        """All of its parts that are known."""
        return sum(value for value in self.micros.values() if value is not None) / 1e6


@dataclass(frozen=True, kw_only=True)
class Account:
    """The time of one run."""

    run: str
    wall_micros: int = 0
    micros: Mapping[Part, int | None]
    """Microseconds by part; those that are known add up to ``wall_micros``."""
    incidents: tuple[Incident, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    """All of the time in order; for pictures."""
    stood_s: float = 0.0
    clock_set_back_s: float = 0.0
    over: bool = False
    """Whether the run has come to an end."""

    @property
    def wall_s(self) -> float:
        """Wall time."""
        return self.wall_micros / 1e6

    @property
    def ettr(self) -> float | None:
        """Productive over wall time, 0..1; None for a run without time."""
        return (self.micros[Part.PRODUCTIVE] or 0) / self.wall_micros if self.wall_micros else None

    def seconds(self, part: Part) -> float | None:
        """One part in seconds; None: not known."""
        value = self.micros[part]
        return None if value is None else value / 1e6

    def to_json(self) -> dict[str, Any]:
        """Plain data: seconds by part, in total and per incident."""
        return {
            "run": self.run,
            "wall_s": self.wall_s,
            "ettr": self.ettr,
            "over": self.over,
            "parts_s": _in_seconds(self.micros),
            "stood_s": self.stood_s,
            "clock_set_back_s": self.clock_set_back_s,
            "incidents": [_incident_json(incident) for incident in self.incidents],
        }


def as_metrics(account: Account) -> str:
    """The account in Prometheus' text format, for a textfile collector; parts that aren't known are left out."""
    run = account.run.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    lines = ["# HELP failsoft_run_seconds Wall time of a run by what it went to.", "# TYPE failsoft_run_seconds gauge"]
    for part, micros in account.micros.items():
        if micros is not None:
            lines.append(f'failsoft_run_seconds{{run="{run}",part="{part}"}} {micros / 1e6}')
    lines += ["# HELP failsoft_run_ettr Productive time over wall time.", "# TYPE failsoft_run_ettr gauge"]
    if account.ettr is not None:
        lines.append(f'failsoft_run_ettr{{run="{run}"}} {account.ettr}')
    return "\n".join(lines) + "\n"


def account(events: Iterable[Event], *, run: str, seen_at_s: float | None = None) -> Account:
    """Add up the time of one run.

    Args:
        events: of a ledger, in order of writing; those of other runs are passed over.
        run: its name.
        seen_at_s: wall time at which the run was last seen at work (its progress file tells), for a run that goes on.
    """
    line = Timeline()
    for event in events:
        if event.side is Side.TRAINING and event.subject == run:
            line.read(event)
    if seen_at_s is not None:
        line.seen_alive(seen_at_s)
    return Account(
        run=run,
        wall_micros=line.now_us,
        micros=_totals(line),
        incidents=tuple(_incident(index, mishap, line.stretches) for index, mishap in enumerate(line.mishaps)),
        stretches=tuple(line.stretches),
        stood_s=line.stood_us / 1e6,
        clock_set_back_s=line.set_back_us / 1e6,
        over=line.stage is Stage.OVER,
    )


def _totals(line: Timeline) -> dict[Part, int | None]:
    totals = _known(line.stretches)
    if line.untimed_refusals and not totals[Part.REFUSED]:
        totals[Part.REFUSED] = None
    if "checkpoint_published" in line.kinds and "checkpoint_handed_over" not in line.kinds:
        totals[Part.STALL] = None
    if "run_started" in line.kinds and "workers_up" not in line.kinds:
        totals[Part.LOAD] = totals[Part.LOAD] or None
    if "run_started" in line.kinds and "attempt_began" not in line.kinds:
        totals[Part.START] = totals[Part.START] or None
    return totals


def _known(stretches: Sequence[Stretch]) -> dict[Part, int | None]:
    """Sums by part; parts of a restart that hide in a stretch which is not told apart are None, unless seen."""
    sums: dict[Part, int | None] = {part: sum(one.length_us for one in stretches if one.part is part) for part in Part}
    if sums[Part.UNSPLIT] or sums[Part.UNKNOWN]:
        sums |= {part: sums[part] or None for part in _RESTART}
    return sums


def _incident(index: int, mishap: Mishap, stretches: Sequence[Stretch]) -> Incident:
    mine = [one for one in stretches if one.incident == index]
    of_kind = {Part.UNDONE, Part.REFUSED} if mishap.kind == "rollback" else {Part.LOST, Part.BACKOFF, *_RESTART}
    known = {part: value for part, value in _known(mine).items() if value != 0 or part in of_kind}
    return Incident(
        kind=mishap.kind,
        at_s=mishap.at_s,
        after_s=min((one.begin_us for one in mine if one.part in _DOWN), default=mishap.at_us) / 1e6,
        position=mishap.position,
        why=mishap.why,
        batches=mishap.batches,
        micros=known,
    )


def _in_seconds(micros: Mapping[Part, int | None]) -> dict[str, float | None]:
    return {str(part): None if value is None else value / 1e6 for part, value in micros.items()}


def _incident_json(incident: Incident) -> dict[str, Any]:
    told = {name: getattr(incident, name) for name in ("kind", "at_s", "after_s", "position", "why", "batches")}
    return told | {"cost_s": incident.cost_s, "parts_s": _in_seconds(incident.micros)}
