"""Which incidents a ledger tells of."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from failsoft.health.ledger import Event, Side, read_ledger
from failsoft.incidents.account import account_of
from failsoft.incidents.finding import incidents_of, named
from failsoft.incidents.picture import draw
from failsoft.incidents.story import tell
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
            st.sampled_from(["degraded", "shadow", "serving", "rejected", None, ["serving"], {"of": "serving"}]),
            st.sampled_from([1, 2, -1, None, "7"]),
        ),
        max_size=40,
    )
)
def test_any_ledger_is_read_and_no_event_belongs_to_two(steps: list[tuple[str, object, object]]) -> None:
    events = [
        Event(at_s=float(n), side=Side.SERVING, kind=kind, subject="g", why="", data={"stage": stage, "epoch": epoch})
        for n, (kind, stage, epoch) in enumerate(steps)
    ]
    incidents = incidents_of(events)
    times = [event.at_s for one in incidents for event in one.events]
    assert len(times) == len(set(times))
    assert all(one.is_over for one in incidents[:-1])
    assert all(one.why == "" and one.relapses >= 0 for one in incidents)


def tripped(told: Told, *, at_epoch: int) -> None:
    told.event("gateway_tripped", "12 bad of 40: 12 weak", epoch=at_epoch)


def test_while_no_controller_answers_the_gateways_that_tripped_tell_of_it(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.plan("serving")
    tripped(told, at_epoch=told.epoch)
    told.event("controller_absent")
    (one,) = incidents_of(read_ledger(tmp_path / "ledger.jsonl").events)
    assert (one.name, one.release, one.stage, one.is_over, one.relapses) == (
        f"incident-{told.epoch + 1}",
        "r1",
        "degraded",
        False,
        0,
    )
    said = account_of(one)
    assert said.what.startswith("r1 gave silent garbage")
    assert "FailsoftControllerSilent" in said.press
    assert draw(tell(one, [], now_s=told.clock.wall_s())).startswith(b"\x89PNG")
    told.plan("degraded", "12 weak of 40")
    (planned,) = incidents_of(read_ledger(tmp_path / "ledger.jsonl").events)
    assert (planned.name, planned.is_planned) == (one.name, True)


def test_a_trip_that_a_plan_or_a_controller_that_began_anew_has_come_after_goes_on_no_more(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.plan("serving")
    tripped(told, at_epoch=told.epoch - 1)
    assert found(told) == [], "it was about an older plan"
    tripped(told, at_epoch=told.epoch)
    tripped(told, at_epoch=told.epoch - 1)
    assert len(found(told)) == 1
    told.event("plan_loaded", epoch=told.epoch)
    assert found(told) == []
    told.plan("shadow")
    tripped(told, at_epoch=told.epoch)
    assert found(told) == [], "what has no traffic can't lose it"


def test_a_release_that_falls_and_is_given_up_at_once_is_an_incident_of_its_own(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.event("stage_move", "SERVING → SHADOW: r2 proposed by anna", epoch=11, stage="shadow", release="r2")
    told.event("stage_move", "SHADOW → CANARY: fine", epoch=12, stage="canary", release="r2")
    told.trip(why="12 bad of 40: 12 weak")
    words = "fell: 12 bad of 40: 12 weak (gateway-1)"
    told.event("stage_move", f"CANARY → SHADOW: {words}; r1 is read", epoch=13, stage="shadow", release="r1")
    (one,) = incidents_of(read_ledger(tmp_path / "ledger.jsonl").events)
    assert (one.name, one.release, one.stage, one.is_over, one.relapses) == ("incident-13", "r2", "shadow", False, 0)
    assert account_of(one).what.endswith("not credible; it was given up")
    assert "older release takes its place" in account_of(one).press
    told.event("stage_move", "RAMP_50 → SERVING: fine", epoch=14, stage="serving", release="r1")
    told.event("stage_move", f"CANARY → REJECTED: {words}", epoch=15, stage="rejected", release="r3")
    told.event("stage_move", "SERVING → REJECTED: rolled back by anna: so", epoch=16, stage="rejected", release="r3")
    incidents = incidents_of(read_ledger(tmp_path / "ledger.jsonl").events)
    assert [(one.name, one.is_over) for one in incidents] == [("incident-13", True), ("incident-15", True)]
