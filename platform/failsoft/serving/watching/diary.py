"""The ledger from an event loop that answers callers: written aside, however slow the disk is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from failsoft.health.ledger import Ledger


class Diary:
    """Hands events to a thread of its own, which writes them in order; nobody waits for it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="diary")  # its thread begins with its work

    @property
    def unrecorded(self) -> int:
        """Events that the disk refused."""
        return self._ledger.unrecorded

    def record(self, kind: str, why: str, **data: Any) -> None:
        """Have an event written; returns at once and never raises."""
        self._writer.submit(partial(self._ledger.record, kind, why, **data))
