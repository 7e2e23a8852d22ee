"""The ledger from an event loop that answers callers: written aside, however slow the disk is."""

from __future__ import annotations

from pathlib import Path

from failsoft.health.aside import Aside
from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger, Side


def diary(path: Path, clock: Clock, *, subject: str) -> Ledger:
    """A ledger whose ``record`` returns at once and never raises; a thread of its own writes in order.

    What finds no room while the disk stands still is in the log, counted as ``unrecorded``, and an event of its own
    (``events_missing``) once the disk answers again.

    Args:
        path: of the ledger.
        clock: dates events, when they happen and not when the disk takes them.
        subject: which replica they are about.
    """
    return Ledger(path, clock, side=Side.SERVING, subject=subject, aside=Aside(clock, waits=False))
