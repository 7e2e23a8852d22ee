"""Where a run stands, for people who look at it from outside: its own words, and how old they are.

Nobody outside can tell a dead run from one in a long step, so this never says *dead*: a run that should be at work and
has not been heard of for :data:`SILENT_AFTER_S` is *silent*, and the age of its last word is always given. So is
one whose words all come from further ahead than that: nobody knows how old they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from failsoft.artifacts.home import run_names
from failsoft.health.ledger import Event, Side
from failsoft.training.accounting.goodput import Account, account
from failsoft.training.progress import Phase, PositionMark, Progress, read_progress
from failsoft.training.summary import RunSummary, summarise

SILENT_AFTER_S = 120.0
"""Progress is written at each batch and at most twice a second, so this is many batches of most runs."""
_AT_REST = frozenset({Phase.FINISHED, Phase.STOPPED})


@dataclass(frozen=True, kw_only=True)
class Whereabouts:
    """One look at a run."""

    run: str
    phase: Phase | None
    """What it said last that it does; None when it left no progress file that can be read."""
    silent: bool
    """It should be at work, and was not heard of for a while."""
    age_s: float | None
    """Since its last word; negative when its clock is ahead of ours; None: it never said a word."""
    position: int
    total: int
    step: int
    loss: float | None
    refused: int
    rollbacks: int
    restarts: int
    """Groups of workers that ended before their time."""
    last_event: str
    """Kind and reason of its last event."""
    summary: RunSummary
    account: Account

    @property
    def state(self) -> str:
        """The phase in a word, with *silent* where it may no longer hold."""
        said = "no progress file" if self.phase is None else str(self.phase)
        return f"silent ({said})" if self.silent else said

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        names = ("run", "phase", "silent", "age_s", "position", "total", "step", "loss", "refused", "rollbacks")
        told = {name: getattr(self, name) for name in (*names, "restarts", "last_event")}
        summary = asdict(self.summary) | {"degraded": self.summary.degraded.to_json()}
        return told | {"summary": summary, "goodput": self.account.to_json()}


def whereabouts(run_folder: Path, events: Sequence[Event], *, now_s: float) -> Whereabouts:
    """Look at a run.

    Args:
        run_folder: its folder.
        events: of the ledger, all runs.
        now_s: wall time.
    """
    run = run_folder.name
    mine = [event for event in events if event.side is Side.TRAINING and event.subject == run]
    progress = read_progress(run_folder)
    mark = PositionMark(run_folder)
    seen_s = mark.last_set_s()
    words_s = [event.at_s for event in mine[-1:]] + ([] if seen_s is None else [seen_s])
    words_s += [] if progress is None else [progress.updated_at_s]
    age_s = min((now_s - word_s for word_s in words_s), key=_how_odd, default=None)
    known_s = mark.last_set_by(now_s)
    time = account(mine, run=run, seen_at_s=known_s)
    resting = time.over if progress is None else progress.phase in _AT_REST
    summary = summarise(mine, run=run, seen_at_s=known_s, seen_position=mark.read())
    look = progress or _by_the_ledger(mine, summary)
    return Whereabouts(
        run=run,
        phase=None if progress is None else progress.phase,
        silent=not resting and not any(abs(now_s - word_s) <= SILENT_AFTER_S for word_s in words_s),
        age_s=age_s,
        position=look.position,
        total=look.total or summary.batches_total,
        step=look.step,
        loss=look.loss,
        refused=look.refused,
        rollbacks=look.rollbacks,
        restarts=summary.worker_deaths,
        last_event=f"{mine[-1].kind}: {mine[-1].why}" if mine else "none",
        summary=summary,
        account=time,
    )


def _how_odd(age_s: float) -> tuple[bool, float]:
    """The youngest word counts, but one from ahead only where there is no other: clocks are set right."""
    return age_s < -SILENT_AFTER_S, abs(age_s)


def _by_the_ledger(mine: Sequence[Event], summary: RunSummary) -> Progress:
    """What is known of a run without a progress file: another trainer's, or one whose file can't be read."""
    return Progress(
        position=mine[-1].count("position") if mine else 0,
        total=summary.batches_total,
        step=mine[-1].count("step") if mine else 0,
        refused=summary.batches_refused,
        rollbacks=summary.rollbacks,
    )


def all_whereabouts(runs: Path, events: Sequence[Event], *, now_s: float) -> list[Whereabouts]:
    """All runs below a folder, the one heard of last first."""
    looks = [whereabouts(runs / name, events, now_s=now_s) for name in run_names(runs)]
    return sorted(looks, key=lambda look: float("inf") if look.age_s is None else look.age_s)
