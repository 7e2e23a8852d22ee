"""Which incidents a ledger tells of."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from failsoft.health.ledger import Event, Side, read_ledger
from failsoft.incidents.finding import incidents_of, named
from tests.incidents.made import Told


def found(told: Told) -> list[str]:
    return [one.name for one in incidents_of(read_ledger(told.home / "ledger.jsonl").events)]


def test_an_incident_goes_from_the_fall_to_full_service_with_its_trips_and_relapses(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.trip("old", "answered by a plan long ago")
    told.whole_incident()
    (one,) = incidents_of(read_ledger(tmp_path / "ledger.jsonl").events)
    assert (one.name, one.why, one.relapses, one.stage, one.is_over) == (
        "incident-12",
        "12 weak of 40",
        1,
        "serving",
        True,
    )
    assert one.gateways == ("gateway-1",)
    assert one.events[0].kind == "gateway_tripped"
    assert one.ended_s is not None
    assert one.ended_s > one.began_s


def test_one_that_goes_on_has_no_end(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.plan("degraded")
    told.plan("shadow")
    (one,) = incidents_of(read_ledger(tmp_path / "ledger.jsonl").events)
    assert (one.is_over, one.ended_s, one.stage) == (False, None, "shadow")


def test_a_release_that_is_given_up_ends_it_too(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for stage in ("degraded", "shadow", "rejected", "serving", "degraded", "serving"):
        told.plan(stage)
    assert found(told) == ["incident-11", "incident-15"]


def test_a_trial_of_a_new_release_is_no_incident(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for stage in ("shadow", "canary", "ramp_20", "ramp_50", "serving"):
        told.plan(stage)
    told.trip("local only")
    told.plan("serving", kind="plan_change")
    assert found(told) == []


def test_a_change_of_the_plan_in_between_ends_nothing(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.plan("degraded")
    told.plan("degraded", kind="plan_change")
    told.plan("shadow")
    assert found(told) == ["incident-11"]


def test_one_is_called_by_name_or_as_the_last(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for stage in ("degraded", "serving", "degraded"):
        told.plan(stage)
    incidents = incidents_of(read_ledger(tmp_path / "ledger.jsonl").events)
    assert [getattr(named(incidents, name), "epoch", None) for name in ("incident-11", "13", "incident-last", "x")] == [
        11,
        13,
        13,
        None,
    ]
    assert named([], "incident-last") is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["stage_move", "plan_change", "gateway_tripped", "trial_held", "odd"]),
            st.sampled_from(["degraded", "shadow", "serving", "rejected", None]),
            st.sampled_from([1, 2, -1, None, "7"]),
        ),
        max_size=40,
    )
)
def test_any_ledger_is_read_and_no_event_belongs_to_two(steps: list[tuple[str, str | None, object]]) -> None:
    events = [
        Event(at_s=float(n), side=Side.SERVING, kind=kind, subject="g", why="", data={"stage": stage, "epoch": epoch})
        for n, (kind, stage, epoch) in enumerate(steps)
    ]
    incidents = incidents_of(events)
    times = [event.at_s for one in incidents for event in one.events]
    assert len(times) == len(set(times))
    assert all(one.is_over for one in incidents[:-1])
    assert all(one.why == "" and one.relapses >= 0 for one in incidents)
