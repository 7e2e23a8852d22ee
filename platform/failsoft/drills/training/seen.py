"""What a user saw of a fault: lines of ledgers that the quiet run has not, exit statuses and last words."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from failsoft.drills.training.attempt import Attempt
from failsoft.health.ledger import Event, each_event

_ROUTINE = frozenset({"run_moved", "checkpoint_handed_over", "workers_up"})
_MOST = 12


def ledger_events(run: Path) -> Iterator[Event]:
    """Of every ledger below the run's folder, oldest first in each."""
    for path in sorted(run.rglob("ledger*.jsonl")):
        yield from each_event(path)


def what_was_seen(run: Path, attempts: Sequence[Attempt], usual: Collection[str]) -> tuple[str, ...]:
    """In words.

    Args:
        run: the run's folder.
        attempts: of the trial.
        usual: kinds of events that the quiet run's ledger has, too.
    """
    lines = [f"{event.kind}: {event.why}" for event in ledger_events(run) if event.kind not in _ROUTINE | set(usual)]
    for number, attempt in enumerate(attempts, start=1):
        if attempt.status != 0 or attempt.hung:
            said = f": {attempt.last_words}" if attempt.last_words else ""
            lines.append(f"start {number} {_ended(attempt)}{said}")
    return tuple(dict.fromkeys(lines))[:_MOST]


def _ended(attempt: Attempt) -> str:
    if attempt.hung:
        return "stood still until it was ended by hand"
    if attempt.status < 0:
        return f"was ended by {signal.Signals(-attempt.status).name}"
    return f"ended with exit status {attempt.status}"
