"""An operator's orders within an incident: what is said of it then, and that the button named is the one that helps."""

from __future__ import annotations

import pytest

from failsoft.health.ledger import Event, Side
from failsoft.incidents.account import account_of
from failsoft.incidents.finding import Incident, incidents_of

ILL = "{before} → DEGRADED: 12 bad of 40: 12 weak (gateway-1)"
HELD = "{before} → DEGRADED: ordered by anna until restored: till the morning"
FOR_A_TIME = "{before} → DEGRADED: ordered by anna for 1800 s: till the morning"
EXPIRED = "DEGRADED → DEGRADED: the order has expired, the rest goes on"
BACK = "DEGRADED → SHADOW: restored by anna: mended"


def incident(*moves: str, told: tuple[str, ...] = ()) -> Incident:
    """One of these plans, as the controller words them, and of these events behind them."""
    before, events = "serving", list[Event]()
    for number, words in enumerate(moves, start=1):
        why = words.format(before=before.upper())
        stage = why.split(" → ")[1].split(":")[0].lower()
        data = {"epoch": number, "stage": stage, "release": "r1", "before": before}
        events.append(event("stage_move", why, number, data))
        before = stage
    events += [event(kind, f"{kind} by anna: so", len(moves) + place, {}) for place, kind in enumerate(told, start=1)]
    (one,) = incidents_of(events)
    return one


def event(kind: str, why: str, at_s: int, data: dict[str, object]) -> Event:
    return Event(at_s=float(at_s), side=Side.SERVING, kind=kind, subject="rollout", why=why, data=data)


@pytest.mark.parametrize(
    ("moves", "what", "press"),
    [
        ((HELD,), "An operator held r1 back", "When the cause is gone: “let it return”."),
        ((FOR_A_TIME,), "An operator held r1 back", "Nothing: it returns when the order's time is over."),
        ((HELD, BACK), "An operator held r1 back", "Nothing: the order is over, and it comes back by shadow"),
        ((ILL,), "r1 gave silent garbage", "Mostly nothing: it rests"),
        ((ILL, HELD), "An operator holds r1 back, which had fallen: r1 gave silent", "“let it return”."),
        ((ILL, FOR_A_TIME), "An operator holds r1 back, which had fallen: r1 gave silent", "Nothing: it returns when"),
        ((ILL, FOR_A_TIME, EXPIRED), "r1 gave silent garbage", "Mostly nothing: it rests"),
        ((HELD, BACK, ILL), "An operator held r1 back, and on its way back it fell: r1 gave", "Mostly nothing"),
    ],
)
def test_what_is_said_and_what_to_press_are_those_of_now(moves: tuple[str, ...], what: str, press: str) -> None:
    account = account_of(incident(*moves))
    assert account.what.startswith(what)
    assert press in account.press


def test_an_order_within_an_incident_is_no_relapse_and_a_fall_after_an_order_is_one() -> None:
    assert incident(ILL, HELD).relapses == 0
    assert incident(ILL, FOR_A_TIME, EXPIRED).relapses == 0
    assert incident(ILL, BACK, ILL).relapses == 1
    assert incident(HELD, BACK, ILL).relapses == 1


def test_whoever_is_held_in_a_stage_is_let_on_by_a_button_of_its_own() -> None:
    assert "“go on by itself”" in account_of(incident(ILL, BACK, told=("trial_held",))).press
    assert "Mostly nothing" in account_of(incident(ILL, BACK, told=("trial_held", "trial_resumed"))).press


def test_an_order_that_was_renewed_is_told() -> None:
    assert [one.kind for one in incident(HELD, told=("order_renewed",)).events] == ["stage_move", "order_renewed"]
