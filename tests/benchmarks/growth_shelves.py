"""What a folder full of checkpoints and a long ledger cost whoever writes to them, and whoever looks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from failsoft.artifacts.manifest import MANIFEST_NAME
from failsoft.artifacts.store import ArtifactStore
from failsoft.cli.events import Wanted, newest
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.ledger import Event, Ledger, Side, each_event
from failsoft.health.ledger_files import FULL_BYTES, Tail
from failsoft.training.accounting.whereabouts import all_whereabouts
from failsoft.training.checkpoints.inspection import is_healthy, position_of
from failsoft.training.checkpoints.retention import Best, Every, Last, Shelved, removable
from tests.benchmarks.growth_curve import Curve, cpu_s, curve

KEPT = (10, 30, 100, 300, 1000)
SHELVES = (100, 1_000, 10_000, 100_000)
LEDGERS = (1_000, 10_000, 100_000, 1_000_000)
_RUN = "run-000"
_BEGAN_S = 1_700_000_000.0
_NOW_S = _BEGAN_S + LEDGERS[-1]
_EVERY = 40
"""One event in so many is of the run that is asked for."""


def checkpoint_curves(*, quick: bool) -> list[Curve]:
    """Finding the newest, publishing one more, and what the rules keep."""
    kept, shelves = (KEPT[:3], SHELVES[:3]) if quick else (KEPT, SHELVES)
    find, publish = [], []
    for count in kept:
        with tempfile.TemporaryDirectory(prefix="failsoft-growth-") as folder:
            store = ArtifactStore(Path(folder), SystemClock(), kind="checkpoint")
            _fill(store, count)
            find.append(cpu_s(partial(_newest, store, count - 1), times=3))
            numbers = iter(range(count, count + 100))
            publish.append(cpu_s(lambda s=store, n=numbers: _publish(s, next(n)), times=9))  # type: ignore[misc]
    rules = (Last(count=3), Best(), Every(hours=24.0))
    filled = [_shelf(count) for count in shelves]
    judge = [cpu_s(partial(removable, shelf, rules), times=3) for shelf in filled]
    return [
        curve("find the newest checkpoint", "checkpoints kept", kept, find, allowed=1.0),
        curve("publish one more", "checkpoints kept", kept, publish, allowed=0.0),
        curve("which may be removed (sorts)", "checkpoints kept", shelves, judge, allowed=1.15),
    ]


def _publish(store: ArtifactStore, position: int) -> None:
    meta = {"position": position, "step": position, "healthy": True, "metrics": {"loss": 1.0}}
    store.publish(f"position-{position:012d}", lambda folder: folder.joinpath("x").touch(), meta=meta)


def _fill(store: ArtifactStore, count: int) -> None:
    """By one real checkpoint and copies of its manifest with another position: a thousand syncs take a minute."""
    _publish(store, 0)
    (first,) = store.listing()
    for position in range(1, count):
        folder = store.root / f"position-{position:012d}"
        folder.mkdir()
        folder.joinpath("x").touch()
        meta = dict(first.manifest.meta) | {"position": position, "step": position}
        folder.joinpath(MANIFEST_NAME).write_text(replace(first.manifest, meta=meta).to_json(), "utf-8")


def _newest(store: ArtifactStore, position: int) -> None:
    found = store.newest(order=position_of, accept=is_healthy)
    if found is None or found.manifest.meta["position"] != position:
        raise AssertionError(f"not the newest: {found}")


def _shelf(count: int) -> list[Shelved]:
    return [
        Shelved(name=f"c{n}", position=n, at_s=600.0 * n, metrics={"loss": 1.0 + (n * 7919 % 997) / 997})
        for n in range(count)
    ]


def ledger_curves(*, quick: bool) -> list[Curve]:
    """Appending, following, the last fifty, a rare word, where runs stand, and a whole reading."""
    lengths = LEDGERS[:2] if quick else LEDGERS
    costs: dict[str, list[float]] = {name: [] for name, _ in _ASKED}
    for count in lengths:
        with tempfile.TemporaryDirectory(prefix="failsoft-growth-") as folder:
            path = Path(folder) / "ledger.jsonl"
            write_ledger(path, count)
            for name, cost in _ASKED:
                costs[name].append(cost(path))
    return [curve(name, "events", lengths, found, allowed=_ALLOWED.get(name, 0.0)) for name, found in costs.items()]


def write_ledger(path: Path, count: int) -> None:
    """As a year would leave it, in files as they are put away when full."""
    line_of, number, held = _line_of(count), 1, bytearray()
    for place in range(count):
        held += line_of(place)
        if len(held) >= FULL_BYTES:
            path.with_name(f"ledger-{number:06d}.jsonl").write_bytes(held)
            number, held = number + 1, bytearray()
    path.write_bytes(held)


def _line_of(count: int) -> Callable[[int], bytes]:
    kinds = ("step_refused", "checkpoint_published", "trip", "stage", "gateway_looked")

    def line(place: int) -> bytes:
        ours = place % _EVERY == 0
        event = Event(
            at_s=_NOW_S - count + place,
            side=Side.TRAINING if ours else Side.SERVING,
            kind="run_started" if ours and place % 10_000 == 0 else kinds[place % len(kinds)],
            subject=_RUN if ours else f"gateway-{place % 16}",
            why="a sentence that says what happened, to whom, when, and what is to be done about it",
            data={"position": place, "epoch": place % 100, "share": 0.25, "needle": place % 9973 == 1},
        )
        return event.to_line()

    return line


def _append_s(path: Path) -> float:
    ledger = Ledger(path, ManualClock(wall_s=_NOW_S), side=Side.SERVING, subject="gateway-1")
    return cpu_s(lambda: ledger.record("trip", "one more", position=1), times=9, calls=20)


def _tail_s(path: Path) -> float:
    ledger, tail = Ledger(path, ManualClock(wall_s=_NOW_S), side=Side.SERVING, subject="gateway-1"), Tail(path)
    tail.skip()

    def one_more() -> None:
        ledger.record("trip", "one more")
        if len(tail.new_lines()) != 1:
            raise AssertionError("the line that was added was not seen")

    try:
        return cpu_s(one_more, times=9, calls=20)
    finally:
        tail.close()


def _last_s(path: Path) -> float:
    return cpu_s(lambda: _found(path, Wanted(), 50), times=3)


def _search_s(path: Path) -> float:
    return cpu_s(lambda: _found(path, Wanted(text='"needle":true'), 50), times=1)


def _since_s(path: Path) -> float:
    return cpu_s(lambda: _found(path, Wanted(since_s=_NOW_S - 600.0), None), times=3)


def _found(path: Path, wanted: Wanted, at_most: int | None) -> list[Event]:
    tail, found = newest(path, wanted, at_most)
    try:
        return list(found)
    finally:
        tail.close()


def _status_s(path: Path) -> float:
    return cpu_s(lambda: all_whereabouts(path.parent / "runs", _of_training(path), now_s=0.0), times=1)


def _of_training(path: Path) -> list[Event]:
    return [event for event in each_event(path, Side.TRAINING) if event.side is Side.TRAINING]


_ASKED = (
    ("append an event", _append_s),
    ("append and follow", _tail_s),
    ("failsoft events, the last 50", _last_s),
    ("failsoft events --since 10m", _since_s),
    ("failsoft events --text, a rare word", _search_s),
    ("failsoft runs", _status_s),
)
_ALLOWED = {"failsoft events --text, a rare word": 1.0, "failsoft runs": 1.0}
