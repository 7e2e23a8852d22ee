"""All trackers of a run, for as long as its driver is at work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.trackers.line import TrackerLine
from failsoft.training.trackers.mlflow import MlFlow
from failsoft.training.trackers.run_watch import RunWatch
from failsoft.training.trackers.tensorboard import TensorBoard
from failsoft.training.trackers.tracker import Address, Ending, Kind, RunFacts, Tracker
from failsoft.training.trackers.wandb import Wandb

_log = logging.getLogger(__name__)

EVERY_S, END_WITHIN_S = 5.0, 10.0


def opener(address: Address, clock: Clock) -> Callable[[], Tracker]:
    """What makes a tracker of its address; its library is loaded by the tracker's own thread."""
    if address.kind is Kind.TENSORBOARD:
        return lambda: TensorBoard(address.place)
    if address.kind is Kind.MLFLOW:
        return lambda: MlFlow(address.place, clock)
    return lambda: Wandb(address.place)


@contextmanager
def tracked(
    run: RunFacts,
    ledger: Path,
    openers: Sequence[tuple[str, Callable[[], Tracker]]],
    clock: Clock,
    *,
    every_s: float = EVERY_S,
    end_within_s: float = END_WITHIN_S,
) -> Iterator[None]:
    """Tell trackers of a run for the time of the block, from threads of their own.

    The block never waits for a tracker, but for some seconds at its end. What fails is told in the ledger as a callback
    that failed, once for each row of failures; what never came through is counted there at the end.

    Args:
        run: what they are told first; its folder's name is the run's.
        ledger: where its events are.
        openers: names of trackers and what makes them.
        clock: measures ages.
        every_s: between two looks.
        end_within_s: how long the end of the block waits for trackers to take what was told; the rest is dropped.
    """
    if not openers:
        yield
        return
    words = Ledger(ledger, clock, side=Side.TRAINING, subject=run.run)
    lines = [TrackerLine(name, open_it, run, told=_teller(words, name)) for name, open_it in openers]
    watch, over = RunWatch(run.folder, ledger, lines, clock), threading.Event()
    thread = threading.Thread(target=_follow, args=(watch, over, every_s), name="failsoft-trackers", daemon=True)
    started = _started([*lines, thread])
    try:
        yield
    finally:
        over.set()
        if started:
            thread.join(end_within_s)
            _close(lines, watch.ending, within_s=end_within_s, clock=clock)
            _count(lines, words)


def _started(threads: Sequence[TrackerLine | threading.Thread]) -> bool:
    try:
        for one in threads:
            one.start()
    except RuntimeError as error:  # the system has no thread left: the run goes on untracked
        _log.warning("the run is not tracked: %s", error)
        return False
    return True


def _teller(words: Ledger, name: str) -> Callable[[str], object]:
    return lambda why: words.record("callback_failed", why, name=f"tracker {name}", retries=0, given_up=False)


def _follow(watch: RunWatch, over: threading.Event, every_s: float) -> None:
    with closing(watch):
        while True:
            last = over.wait(every_s)
            try:
                watch.look()
            except Exception as error:  # noqa: BLE001 -- the thread's outermost frame: it tells of a run, and must not end it
                _log.warning("the run can't be looked at for its trackers: %s: %s", type(error).__name__, error)
            if last:
                return


def _close(lines: Sequence[TrackerLine], ending: Ending, *, within_s: float, clock: Clock) -> None:
    """All at once, so that the slowest says how long it takes; without a thread more, for there may be none left."""
    for line in lines:
        line.say_over(ending)
    over_at_s = clock.monotonic_s() + within_s
    for line in lines:
        line.close(ending, within_s=max(0.0, over_at_s - clock.monotonic_s()))


def _count(lines: Sequence[TrackerLine], words: Ledger) -> None:
    for line in lines:
        if line.dropped:
            why = f"{line.dropped} messages never reached it, after {line.failures} failed calls"
            words.record("callback_failed", why, name=f"tracker {line.name}", retries=0, given_up=True)
