"""Who is told of what, and how often."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from failsoft.alerts.message import Message, Throttle
from failsoft.alerts.settings import Form
from failsoft.health.ledger import Event, Side
from tests.alerts.made import target


def event(kind: str = "trip", subject: str = "g", why: str = "so", side: Side = Side.SERVING) -> Event:
    return Event(at_s=1_700_000_000.0, side=side, kind=kind, subject=subject, why=why, data={"text": "SECRET"})


def test_only_wanted_kinds_and_sides_are_told() -> None:
    throttle = Throttle(target(sides=["training"]))
    assert throttle.message(event(), now_s=0.0) is None
    assert throttle.message(event(kind="rest", side=Side.TRAINING), now_s=0.0) is None
    assert throttle.message(event(side=Side.TRAINING), now_s=0.0) is not None


def test_the_same_of_the_same_subject_is_told_once_in_a_while_and_then_with_their_number() -> None:
    throttle = Throttle(target(again_after="10s"))
    assert throttle.message(event(), now_s=0.0) is not None
    assert throttle.message(event(subject="other"), now_s=0.0) is not None
    assert [throttle.message(event(why=str(n)), now_s=float(n)) for n in range(1, 5)] == [None] * 4
    assert throttle.due(now_s=9.9) == []
    (late,) = throttle.due(now_s=10.0)
    assert (late.event.why, late.held_back) == ("4", 3)
    assert throttle.due(now_s=30.0) == []


def test_one_that_did_not_arrive_is_no_reason_to_hold_the_next_back() -> None:
    throttle = Throttle(target())
    throttle.message(event(), now_s=0.0)
    throttle.forget(event())
    assert throttle.message(event(), now_s=1.0) is not None


@example([(0, 6.06870891857424), (0, 0.0)])
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 30.0)), max_size=60))
def test_every_event_is_told_or_counted_in_one_that_is(steps: list[tuple[int, float]]) -> None:
    throttle, now_s, told = Throttle(target(again_after="10s")), 0.0, list[Message]()
    for subject, after_s in steps:
        now_s += after_s
        told += throttle.due(now_s=now_s)
        message = throttle.message(event(subject=str(subject)), now_s=now_s)
        told += [] if message is None else [message]
    told += throttle.due(now_s=now_s + 10.001)  # a sum of floats may fall short of 10
    assert sum(1 + message.held_back for message in told) == len(steps)


def test_what_is_remembered_has_a_bound() -> None:
    throttle = Throttle(target(), most=10)
    for number in range(1000):
        throttle.message(event(subject=str(number)), now_s=0.0)
    assert len(throttle._told) == 10


def test_a_message_quotes_no_details_and_names_the_next_command() -> None:
    message = Message(event=event(subject="run one; rm -rf"), id="7", held_back=2)
    for form in Form:
        text = str(message.body(form))
        assert "SECRET" not in text
        assert "'run one; rm -rf'" in text
        assert "2" in text
    assert message.body(Form.JSON)["at"] == "2023-11-14T22:13:20+00:00"


def test_no_word_of_an_event_becomes_a_mention_or_a_link() -> None:
    text = Message(event=event(why="<!channel> <https://x|y> `rm` *b*\nnext"), id="7").body(Form.SLACK)["text"]
    assert "<" not in text
    assert text.count("`") == 2
    assert text.count("\n") == 1
