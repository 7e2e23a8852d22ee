"""When a wave that is nobody's fault begins and ends. No Ray."""

from __future__ import annotations

import pytest

from failsoft.health.window import Outcome
from failsoft.serving.watching.waves import QUIET_LOOKS, TELL_AGAIN_LOOKS, Waves
from tests.serving.watching.test_answer_history import answer
from tests.serving.watching.test_front import Replica


def test_a_wave_is_told_once_and_its_end_only_after_half_a_minute_of_quiet() -> None:
    waves = Waves()
    assert waves.news({}, 100) == []
    assert waves.news({"shed": "20 of the last 100 calls"}, 200) == [("overload_began", "20 of the last 100 calls")]
    for answers in range(201, 201 + QUIET_LOOKS - 1):
        assert waves.news({}, answers) == []
    assert waves.news({"shed": "again"}, 300) == [], "a pause is no end"
    told = [waves.news({}, answers) for answers in range(301, 301 + QUIET_LOOKS)]
    assert told == [[]] * (QUIET_LOOKS - 1) + [[("overload_over", "no more of it for half a minute")]]


def test_while_it_lasts_it_is_told_again_and_both_waves_apart() -> None:
    waves, warnings = Waves(), {"shed": "many", "bad_input": "some", "repaired": "more"}
    told = [waves.news(warnings, look + 1) for look in range(TELL_AGAIN_LOOKS + 1)]
    assert told[0] == [("overload_began", "many"), ("bad_input_began", "some")]
    assert told[-1] == [("overload_goes_on", "many"), ("bad_input_goes_on", "some")]
    assert told[1:-1] == [[]] * (TELL_AGAIN_LOOKS - 1)


def test_a_window_that_nobody_fills_any_more_tells_of_the_past() -> None:
    waves = Waves()
    waves.news({"bad_input": "30 of the last 100 calls"}, 100)
    told = [waves.news({"bad_input": "30 of the last 100 calls"}, 100) for _ in range(QUIET_LOOKS)]
    assert told[-1] == [("bad_input_over", "no more of it for half a minute")]


@pytest.mark.anyio
@pytest.mark.parametrize(("outcome", "kind"), [(Outcome.SHED, "overload"), (Outcome.BAD_INPUT, "bad_input")])
async def test_the_front_desk_tells_of_what_its_own_monitor_warns_of(outcome: Outcome, kind: str) -> None:
    replica = Replica()
    replica.note(Outcome.GOOD, 60)
    replica.note(outcome, 60)
    replica.desk.answered(answer(), 0, "none", "x")
    (told,) = replica.desk.new_refusals()
    assert told == (f"{kind}_began", "60 of the last 120 calls")
