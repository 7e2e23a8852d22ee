"""Waves that no plan tells of, found in the ledger across gateways."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from failsoft.health.ledger import Event, Side
from failsoft.incidents.account import account_of
from failsoft.incidents.finding import SILENT_S, Incident, Kind, incidents_of, named

STEPS = ("began", "goes_on", "over")


def told(*steps: tuple[float, str, str], kind: str = "overload") -> list[Event]:
    """Events as (time, gateway, step)."""
    return [
        Event(at_s=at_s, side=Side.SERVING, kind=f"{kind}_{step}", subject=gateway, why=f"{gateway} {step}")
        for at_s, gateway, step in steps
    ]


def test_a_wave_goes_from_the_first_gateway_in_it_to_the_last_one_out_of_it() -> None:
    (one,) = incidents_of(told((0, "a", "began"), (5, "b", "began"), (60, "a", "over"), (70, "b", "over")))
    assert (one.kind, one.began_s, one.ended_s, one.why) == (Kind.OVERLOAD, 0, 70, "a began")
    assert one.gateways == ("a", "b")
    assert one.name == "incident-overload-19700101T000000Z"
    assert (one.stage, one.relapses, one.release) == ("", 0, "")


def test_one_that_still_goes_on_has_no_end_and_is_called_by_its_name() -> None:
    events = told((100, "a", "began"), (160, "a", "goes_on"), kind="bad_input")
    (one,) = incidents_of(events, now_s=200.0)
    assert (one.is_over, one.ended_s) == (False, None)
    assert named([one], "bad-input-19700101T000140Z") is one
    assert named([one], "incident-last") is one


def test_a_gateway_that_died_in_a_wave_does_not_keep_it_open_for_ever() -> None:
    events = told((0, "dead", "began"), (10, "b", "began"), (60, "b", "goes_on"), (70, "b", "over"))
    assert [one.is_over for one in incidents_of(events)] == [False], "nobody knows yet"
    (one,) = incidents_of(events, now_s=70.0 + SILENT_S)
    assert (one.is_over, one.ended_s) == (True, 70)
    later = told((1000, "c", "began"))
    assert [(one.began_s, one.is_over) for one in incidents_of(events + later)] == [(0, True), (1000, False)]


def test_a_wave_and_a_fall_are_two_incidents_in_the_order_of_their_beginnings() -> None:
    fall = [
        Event(
            at_s=at_s,
            side=Side.SERVING,
            kind="stage_move",
            subject="rollout",
            why="31 bad of 60: 31 weak",
            data={"stage": stage, "epoch": epoch, "release": "r1"},
        )
        for at_s, stage, epoch in ((5.0, "degraded", 2), (90.0, "serving", 7))
    ]
    wave = told((1, "a", "began"), (50, "a", "over"))
    both = incidents_of([wave[0], fall[0], wave[1], fall[1]])
    assert [(one.kind, one.began_s, one.is_over) for one in both] == [(Kind.OVERLOAD, 1, True), (Kind.FALL, 5, True)]


@given(st.lists(st.tuples(st.integers(0, 500), st.sampled_from("abc"), st.sampled_from(STEPS)), max_size=40))
def test_any_order_of_events_is_read_and_none_belongs_to_two(steps: list[tuple[int, str, str]]) -> None:
    events = [
        Event(at_s=float(at_s), side=Side.SERVING, kind=f"overload_{step}", subject=gateway, why=str(number))
        for number, (at_s, gateway, step) in enumerate(steps)
    ]
    incidents = incidents_of(events, now_s=600.0)
    numbers = [int(event.why) for one in incidents for event in one.events]
    assert numbers == sorted(set(numbers))
    assert sum(not one.is_over for one in incidents) <= 1


def fall(why: str, *, trips: tuple[str, ...] = ()) -> Incident:
    tripped = [Event(at_s=0, side=Side.SERVING, kind="gateway_tripped", subject="g", why=words) for words in trips]
    move = Event(at_s=1, side=Side.SERVING, kind="stage_move", subject="rollout", why=why, data={"stage": "degraded"})
    return Incident(epoch=2, release="r1", events=(*tripped, move), is_over=False)


def test_what_the_bad_answers_were_names_the_incident() -> None:
    assert "silent garbage" in account_of(fall("31 bad of 60: 29 weak, 2 late (gateway-1)")).what
    assert "hung" in account_of(fall("16 bad of 78", trips=("16 bad of 78: 16 late",))).what
    assert "crash" in account_of(fall("16 bad of 78"), {"error": 9, "weak": 1, "shed": 80}).what
    assert account_of(fall("feedback: 9 wrong of 20")).what == "r1 was taken out of service"
    assert account_of(fall("16 bad of 78"), {"weak": 0}).what == "r1 was taken out of service"


def test_an_operators_own_order_is_no_illness() -> None:
    account = account_of(fall("SERVING → DEGRADED: ordered by console until restored: 5 weak answers seen"))
    assert account.what == "An operator held r1 back"
    assert "“let it return”" in account.press
