"""A gateway's duty to let go of what is past its time: of the history of answers, of pages, and of the ledger.

All gateways of a home do so, one after the other: the second finds nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger, Side
from failsoft.health.ledger_retention import shorten
from failsoft.health.line_removal import Removed
from failsoft.health.retention import read_retention
from failsoft.serving.watching.answer_history import FILE_NAME
from failsoft.serving.watching.answer_removal import shorten_answers
from failsoft.serving.watching.page_removal import FOLDER, pages_before, pages_that_show, remove_pages

_log = logging.getLogger(__name__)
EVERY_S = 3600.0


class Housekeeping:
    """Of one gateway.

    Args:
        home: whose ``retention.toml`` holds; it is read anew each time.
        clock: tells how old things are, by the wall.
    """

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home, self._clock = home, clock

    async def run(self) -> None:
        """For ever; a disk that refuses, or settings that can't be meant, cost one time, with a word in the log."""
        while True:
            try:
                await asyncio.to_thread(self.tidy)
            except (ConfigError, OSError) as error:
                _log.warning("what is past its time stays: %s", error)
            await asyncio.sleep(EVERY_S)

    def tidy(self) -> Removed:
        """Once; writes down when something went. Blocks on the disk.

        Raises:
            ConfigError: the settings can't be meant; nothing was removed.
            OSError: the disk refuses.
        """
        policy, now_s = read_retention(self._home.root), self._clock.wall_s()
        pages, reports = list[Path](), self._home.root / FOLDER

        def go_first(texts: set[str]) -> None:
            pages.extend(those := pages_that_show(reports, texts))
            remove_pages(those)

        of_answers = shorten_answers(self._home.serving / FILE_NAME, policy, now_s=now_s, before=go_first)
        of_events = shorten(self._home.ledger, policy, now_s=now_s)
        old = pages_before(reports, policy.cut(now_s).reports_s)
        removed = of_answers + of_events + Removed(files=len(pages) + remove_pages(old))
        if removed != Removed():
            ledger = Ledger(self._home.ledger, self._clock, side=Side.SERVING, subject="retention")
            why = f"past its time by retention.toml: {of_answers.lines} spans, {of_events.lines} events, whole files"
            ledger.record("past_its_time", f"{why} {removed.files}", spans=of_answers.lines, events=of_events.lines)
        return removed
