"""Carries an order to remove out, place by place, while apps and runs go on. Each file is whole at any moment.

Places: the history of answers, pages of incidents, the ledger, the folders of runs. Never touched: checkpoints,
releases, candidates, the plan, progress, the list of requeued batches, the record of consumed samples, tokens and
settings. A run that a process drives keeps its letters and stacks, and is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from failsoft.artifacts.home import Home, run_names
from failsoft.errors import ConfigError
from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger, Side
from failsoft.health.ledger_files import archives
from failsoft.health.ledger_retention import judge_events
from failsoft.health.line_removal import Removed, remove_lines
from failsoft.purging.order import Order, What
from failsoft.serving.watching.answer_history import FILE_NAME
from failsoft.serving.watching.answer_removal import judge_spans
from failsoft.serving.watching.page_removal import FOLDER, pages_before, pages_that_show, remove_pages
from failsoft.training.checkpoints.driver_lock import sole_driver
from failsoft.training.run_removal import LeftRun, let_go

_NONE, _NO_RUN = Removed(), LeftRun()


@dataclass(frozen=True, kw_only=True)
class Purged:
    """What went, or would go."""

    spans: Removed = _NONE
    """Of the history of answers: spans that lost something, and files."""
    texts: int = 0
    """Texts that went with them."""
    pages: int = 0
    events: Removed = _NONE
    runs: LeftRun = _NO_RUN
    busy: tuple[str, ...] = ()
    """Runs that a process drives, whose letters and stacks stay."""

    @property
    def is_nothing(self) -> bool:
        """Whether nothing was found that had to go."""
        return self == Purged(busy=self.busy)

    def to_json(self) -> dict[str, Any]:
        """Counts, and never a word of what they count."""
        return {
            "spans": self.spans.lines,
            "texts": self.texts,
            "pages": self.pages,
            "events": self.events.lines,
            "whole_files": self.spans.files + self.events.files,
            **asdict(self.runs),
            "runs_in_use": list(self.busy),
        }


@dataclass(kw_only=True)
class Purge:
    """One order for one home.

    Args:
        home: whose files.
        order: what is to go.
        clock: for the event.
        dry_run: only count.
    """

    home: Home
    order: Order
    clock: Clock
    dry_run: bool = False
    _texts: set[str] = field(default_factory=set)

    def carry_out(self, *, why: str = "") -> Purged:
        """Remove, and write an event that says how much; call it again after a kill in the midst.

        Raises:
            OSError: the disk refuses; what was done is done, and the same order goes on with the rest.
        """
        spans = self._answers(dry_run=True)
        pages = self._pages()
        if not self.dry_run:  # pages first: once its text is gone, nothing tells any more that one shows it
            remove_pages(pages)
            spans = self._answers(dry_run=False)
            remove_pages(self._pages())  # made meanwhile
        events = self._events()
        runs, busy = self._runs()
        found = Purged(spans=spans, texts=len(self._texts), pages=len(pages), events=events, runs=runs, busy=busy)
        if not self.dry_run:
            kinds = sorted(map(str, self.order.what))
            by = "by request or caller" if self.order.of_a_person else "by age"
            ledger = Ledger(self.home.ledger, self.clock, side=Side.SERVING, subject="purge")
            ledger.record("purged", why or f"{', '.join(kinds)} {by}", what=kinds, by=by, removed=found.to_json())
        return found

    def still_there(self) -> list[Path]:
        """Files that hold one of the removed texts all the same, as a copy that somebody made.

        Not looked at: the history itself, where another may have written the same, and releases and candidates, whose
        texts are those of the corpus.
        """
        history = self.home.serving / FILE_NAME
        known = {history, *archives(history)}
        found = pages_that_show(self.home.root, self._texts, beside={"releases", "candidates"})
        return [path for path in found if path not in known]

    def _answers(self, *, dry_run: bool) -> Removed:
        judge = judge_spans(self.order.cut, whole=not self.order.keeps_shapes, gone=self._texts.add)
        kinds = {What.TEXTS, What.SPECIMENS, What.ANSWERS}
        if self.order.what.isdisjoint(kinds):
            return Removed()
        return remove_lines(self.home.serving / FILE_NAME, judge, dry_run=dry_run)

    def _pages(self) -> list[Path]:
        folder = self.home.root / FOLDER
        return list({*pages_that_show(folder, self._texts), *pages_before(folder, self.order.cut.reports_s)})

    def _events(self) -> Removed:
        cut = self.order.cut
        if What.LEDGER not in self.order.what or (math.isinf(cut.ledger_s) and not cut.marks):
            return Removed()
        return remove_lines(self.home.ledger, judge_events(cut.ledger_s, cut.marks), dry_run=self.dry_run)

    def _runs(self) -> tuple[LeftRun, tuple[str, ...]]:
        cut, found, busy = self.order.cut, LeftRun(), list[str]()
        if math.isinf(cut.letters_s) and math.isinf(cut.stacks_s):
            return found, ()
        for name in run_names(self.home.runs):
            for left in self._of_run(self.home.runs / name, busy):
                found += left
        return found, tuple(busy)

    def _of_run(self, folder: Path, busy: list[str]) -> Iterator[LeftRun]:
        cut = self.order.cut
        first = let_go(folder, letters_s=cut.letters_s, stacks_s=cut.stacks_s, dry_run=True)
        if first == LeftRun() or self.dry_run:
            yield first
            return
        try:
            with sole_driver(folder):
                yield let_go(folder, letters_s=cut.letters_s, stacks_s=cut.stacks_s)
        except ConfigError:
            busy.append(folder.name)
