"""Whether the release that fell was new."""

from __future__ import annotations

from pathlib import Path

from failsoft.health.ledger import Event, read_ledger
from failsoft.incidents.arrival import Arrival, Arrivals
from failsoft.incidents.finding import incidents_of
from tests.incidents.made import BEGAN_S, Told


def arrivals(events: tuple[Event, ...]) -> Arrivals:
    made = Arrivals()
    for event in events:
        made.read(event)
    return made


def came(told: Told, *, skip: int = 0) -> Arrival | None:
    """Of the release of the last incident, by a ledger whose first events were not read."""
    events = tuple(read_ledger(told.home / "ledger.jsonl").events)
    return arrivals(events[skip:]).of(incidents_of(events)[-1])


def first(told: Told) -> None:
    told.event("plan_first", "first plan: r1 serves", epoch=told.epoch, stage="serving", release="r1")


def test_a_release_came_with_the_first_plan_of_those_in_a_row(tmp_path: Path) -> None:
    told = Told(tmp_path)
    first(told)
    told.clock.advance(3600.0)
    told.plan("degraded", "ill")
    found = came(told)
    assert found == Arrival(release="r1", epoch=10, at_s=BEGAN_S, why="first plan: r1 serves", is_cut=False)


def test_one_that_came_back_came_when_it_did_so_last(tmp_path: Path) -> None:
    told = Told(tmp_path)
    first(told)
    told.event("stage_move", "proposed", epoch=11, stage="shadow", release="r2")
    told.clock.advance(60.0)
    told.event("stage_move", "the older one serves", epoch=12, stage="serving", release="r1")
    told.epoch = 12
    told.plan("degraded", "ill")
    found = came(told)
    assert found is not None
    assert (found.epoch, found.why) == (12, "the older one serves")


def test_where_the_beginning_was_not_read_it_may_have_come_earlier(tmp_path: Path) -> None:
    told = Told(tmp_path)
    first(told)
    told.plan("serving", "a restart")
    told.plan("degraded", "ill")
    found = came(told, skip=1)
    assert found is not None
    assert (found.is_cut, found.why) == (True, "a restart")


def test_a_wave_is_about_no_release_and_what_was_not_read_is_not_known(tmp_path: Path) -> None:
    told = Told(tmp_path)
    first(told)
    told.event("overload_began", "31 of the last 100 calls")
    assert came(told) is None
    told.plan("degraded", "ill")
    assert came(told, skip=3) is None


def test_a_line_that_names_no_release_is_passed_over(tmp_path: Path) -> None:
    told = Told(tmp_path)
    first(told)
    told.event("stage_move", "odd", epoch=11, stage="shadow", release=7)
    told.epoch = 11
    told.plan("degraded", "ill")
    found = came(told)
    assert found is not None
    assert found.epoch == 10
