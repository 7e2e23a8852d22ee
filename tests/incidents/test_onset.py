"""From when on users saw it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from failsoft.health.ledger import read_ledger
from failsoft.incidents.answers import read_spans
from failsoft.incidents.finding import incidents_of
from failsoft.incidents.onset import FURTHEST_S, GAP_S, Piece, onset_s
from failsoft.incidents.story import Story, tell
from failsoft.serving.watching.answer_history import FILE_NAME
from tests.incidents.made import Told


def pieces(*hits: int, until_s: float = 100.0) -> list[Piece]:
    """Spans of 5 s with 100 answers each, the last of which ends then."""
    starts = [until_s - 5.0 * (len(hits) - place) for place in range(len(hits))]
    return [
        Piece(start_s=start, end_s=start + 5.0, answers=100, hit=hit) for start, hit in zip(starts, hits, strict=True)
    ]


def test_the_first_bad_span_that_leads_up_to_it_is_where_it_began() -> None:
    assert onset_s(pieces(0, 4, 30, 60), 100.0) == 90.0
    assert onset_s(pieces(0, 0, 0, 0), 100.0) == 100.0
    assert onset_s([], 100.0) == 100.0
    assert onset_s(pieces(60, 60, until_s=50.0), 100.0) == 100.0, "that was another trouble"
    assert onset_s(pieces(60, 0, 0, 60), 100.0) == 80.0, "a gateway that was not hit in between ends nothing"
    assert onset_s(pieces(0, 50, until_s=102.0), 100.0) == 97.0, "the span in which it was noticed"


@given(st.lists(st.tuples(st.floats(0, 2000), st.floats(0.1, 10), st.integers(0, 9), st.integers(0, 9)), max_size=30))
def test_it_is_never_later_than_when_it_was_noticed_nor_too_long_ago(
    spans: list[tuple[float, float, int, int]],
) -> None:
    some = [Piece(end - took, end, max(answers, hit), hit) for end, took, answers, hit in spans]
    first_s = onset_s(some, 1000.0)
    assert 1000.0 - FURTHEST_S <= first_s <= 1000.0
    assert first_s == 1000.0 or any(one.start_s == first_s and one.hit for one in some)
    assert GAP_S > 5.0


def slow_to_notice(tmp_path: Path) -> Story:
    """Thin traffic: three spans of bad answers before there is evidence enough."""
    told = Told(tmp_path)
    told.answers(10, primary=10)
    for _ in range(3):
        told.clock.advance(1.0)
        told.span({}, answers={"primary": {"none": 6}, "rules": {"weak": 4}})
    told.trip(why="12 bad of 40: 12 weak")
    told.plan("degraded", "12 bad of 40: 12 weak")
    told.answers(5, rules=10)
    (one,) = incidents_of(read_ledger(tmp_path / "ledger.jsonl").events)
    return tell(
        one, read_spans(tmp_path / "serving" / FILE_NAME, after_s=0.0, before_s=1e12), now_s=told.clock.wall_s()
    )


def test_answers_that_were_bad_before_it_was_noticed_are_counted_and_said(tmp_path: Path) -> None:
    story = slow_to_notice(tmp_path)
    phases = story.phases()
    assert (phases["before"].answers, phases["before"].replaced) == (100, 0)
    assert (phases["during"].answers, phases["during"].replaced) == (80, 62)
    assert "62 of 80 answers (77.5%)" in story.headline()
    assert "The first of them came 3 s before it was noticed." in story.headline()
