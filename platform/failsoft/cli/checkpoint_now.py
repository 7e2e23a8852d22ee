"""``failsoft ckpt now``: ask a run to save at its next step and go on."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption
from failsoft.cli.checkpoints import ckpt
from failsoft.cli.completion import complete_run
from failsoft.cli.said import JsonOption, answer
from failsoft.errors import ArtifactMissingError, ConfigError, TrainingError
from failsoft.health.clock import Clock, SystemClock
from failsoft.health.ledger import Event, Side, parse_event
from failsoft.health.ledger_files import Tail, last_bytes

if TYPE_CHECKING:
    from failsoft.training.survival.saving_asked import Wish

_LOOK_S = 0.2
_FAILURES = frozenset({"checkpoint_failed", "checkpoint_withheld", "snapshot_withheld"})
_ENDS = frozenset({"preempted", "run_left", "run_finished", "run_stopped"})


@ckpt.command()
def now(
    run: Annotated[
        str, typer.Argument(help="Name of the run, as in: failsoft train --run NAME.", autocompletion=complete_run)
    ],
    why: Annotated[str, typer.Option(help="Goes to the ledger.")] = "asked by failsoft ckpt now",
    wait: Annotated[float, typer.Option(help="Seconds to wait until it is saved; 0 returns at once.")] = 0.0,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Ask a run to save a checkpoint after its present step and go on; its workers all save the same step.

    While the storage is slower than the schedule a newer one may take its place; --wait waits for that one then.
    """
    from failsoft.training.survival.saving_asked import drop_wish

    if not wait >= 0.0:
        raise ConfigError(f"--wait is {wait}; use 0 or more seconds")
    place, clock = Home.find(home), SystemClock()
    _refuse_at_rest(place, run)
    with closing(Tail(place.ledger, after=last_bytes(place.ledger, 0))) as tail:
        wish = drop_wish(place.run(run), why)
        position = _saved(run, wish, tail, clock, wait) if wait else None
    words = f"run {run} is asked to save" if position is None else f"run {run} has saved batch {position}"
    answer(json_, {"run": run, "asked": True, "position": position}, f"{words}; see: failsoft ckpt ls {run}")


def _refuse_at_rest(place: Home, run: str) -> None:
    from failsoft.training.progress import Phase, read_progress

    if not place.run(run).is_dir():
        there = sorted(path.name for path in place.runs.iterdir()) if place.runs.is_dir() else []
        raise ArtifactMissingError(f"there is no run {run!r} in {place.runs}; there: {', '.join(there) or 'none'}")
    progress = read_progress(place.run(run))
    phase = None if progress is None else progress.phase
    if phase not in {Phase.PREPARING, Phase.TRAINING}:
        said = "has not begun" if phase is None else f"does not train any more (it is {phase})"
        raise TrainingError(f"run {run!r} {said}, so there is nothing to save; see: failsoft ckpt ls {run}")


class _Story:
    """What the run's ledger tells of one request."""

    def __init__(self, run: str, wish: Wish) -> None:
        self._run = run
        self._wish = wish
        self.asked: Event | None = None
        self._ended: Event | None = None
        self._published: set[int] = set()
        self._failed: dict[int, Event] = {}

    def read(self, event: Event) -> None:
        """The next event of the run."""
        if event.kind == "save_asked" and _asks_for(event, self._wish):
            self.asked = event
        elif event.kind == "checkpoint_published":
            self._published.add(event.count("position"))
        elif event.kind in _FAILURES:
            self._failed[event.count("position")] = event
        elif event.kind in _ENDS:
            self._ended = event

    def saved(self) -> int | None:
        """The position that was saved for it, or a newer one that took its place; None: not yet.

        Raises:
            TrainingError: it was not, and why.
        """
        if self.asked is not None:
            position = self.asked.count("position")
            there = {position} if self.asked.data.get("there") is True else set[int]()
            saved = there | {one for one in self._published if one >= position}
            if saved:
                return min(saved)
            if position in self._failed:
                why = self._failed[position].why
                raise TrainingError(f"run {self._run!r} could not save batch {position}: {why}; see: failsoft events")
        if self._ended is not None:
            said = f"{self._ended.kind}: {self._ended.why}"
            raise TrainingError(f"run {self._run!r} ended ({said}); see: failsoft ckpt ls {self._run}")
        return None


def _asks_for(event: Event, wish: Wish) -> bool:
    requests = event.data.get("requests")
    return isinstance(requests, list) and wish.id in requests


def _saved(run: str, wish: Wish, tail: Tail, clock: Clock, wait_s: float) -> int:
    """The position that was saved for it.

    Raises:
        TrainingError: it was not, or not in time.
    """
    until_s, story = clock.monotonic_s() + wait_s, _Story(run, wish)
    while True:
        news = (event for event in map(parse_event, tail.new_lines()) if event is not None)
        for event in news:
            if event.side is Side.TRAINING and event.subject == run:
                story.read(event)
        position = story.saved()
        if position is not None:
            return position
        if not clock.monotonic_s() < until_s:
            said = "has not come to its next step" if story.asked is None else "is still writing"
            raise TrainingError(f"run {run!r} {said} after {wait_s:g} s; see: failsoft runs {run}")
        clock.sleep_s(_LOOK_S)
