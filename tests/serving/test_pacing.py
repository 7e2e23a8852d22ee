"""A release is read beside live traffic with pauses that follow the load, and comes some day on any machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from failsoft.serving.pacing import LoadingPolicy, Pace, spares
from failsoft.serving.plan.plan import Colour, Stage
from tests.serving.fakes import plan

PIECE_S = 0.002


class Load:
    """Reads pieces on a clock that is moved by hand."""

    def __init__(self, *, spare: Callable[[], bool] = lambda: True, **policy: float) -> None:
        self.clock, self.said = ManualClock(), list[str]()
        self.pace = Pace(LoadingPolicy(**policy), self.clock, spare=spare, on_hurry=self.said.append)

    def read(self, pieces: int, piece_s: float = PIECE_S) -> float:
        """Seconds that it took."""
        began_s = self.clock.monotonic_s()
        for _ in range(pieces):
            self.clock.advance(piece_s)
            self.pace.beat()
        return self.clock.monotonic_s() - began_s


def test_it_works_for_its_share_of_the_time_and_pauses_longer_when_pieces_take_longer() -> None:
    load = Load(share=0.2)
    assert load.read(100) == pytest.approx(100 * PIECE_S / 0.2)
    assert load.read(100, 2 * PIECE_S) == pytest.approx(200 * PIECE_S / 0.2), "as on a machine with less to give"


def test_many_tiny_pieces_share_a_pause_since_waking_up_costs_something_too() -> None:
    load = Load(share=0.2)
    load.read(2, 0.0001)
    assert load.pace.paused_s == 0.0
    load.read(8, 0.0001)
    assert load.pace.paused_s == pytest.approx(0.004, abs=0.001)


def test_one_piece_that_hung_is_not_followed_by_a_pause_as_many_times_as_long() -> None:
    load = Load(share=0.01)
    assert load.read(1, 30.0) == pytest.approx(30.1)


def test_the_bound_holds_where_a_machine_is_so_busy_that_each_pause_takes_longer_than_asked_for() -> None:
    class WakesLate(ManualClock):
        def sleep_s(self, duration_s: float) -> None:
            super().sleep_s(duration_s + 0.02)

    load = Load(pauses_at_most_s=1.0)
    load.clock = WakesLate()
    load.pace = Pace(LoadingPolicy(pauses_at_most_s=1.0), load.clock, spare=lambda: True, on_hurry=load.said.append)
    assert load.read(10_000, 0.0003) == pytest.approx(3.0 + 1.0, abs=0.05)
    assert len(load.said) == 1


def test_where_nobody_is_to_be_spared_there_are_no_pauses_from_that_moment_on() -> None:
    live = [True]
    load = Load(spare=lambda: live[0])
    assert load.read(10) > 10 * PIECE_S
    live[0] = False
    assert load.read(1000) == pytest.approx(1000 * PIECE_S)


def test_on_a_machine_that_is_full_for_ever_all_pauses_together_are_bounded_and_the_hurry_is_told_once() -> None:
    load = Load(share=0.2, pauses_at_most_s=3.0)
    assert load.read(1000, 0.05) == pytest.approx(1000 * 0.05 + 3.0, abs=0.1)
    (said,) = load.said
    assert "3.0 s, their bound" in said


@pytest.mark.parametrize("policy", [{"share": 1.0}, {"pauses_at_most_s": 0.0}])
def test_pauses_can_be_switched_off(policy: dict[str, float]) -> None:
    load = Load(share=policy.get("share", 0.2), pauses_at_most_s=policy.get("pauses_at_most_s", 20.0))
    assert load.read(100) == pytest.approx(100 * PIECE_S)
    assert not load.said


@pytest.mark.parametrize("policy", [{"share": 0.0}, {"share": float("nan")}, {"pauses_at_most_s": float("inf")}])
def test_impossible_settings_are_refused_in_a_sentence(policy: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="suits"):
        LoadingPolicy(**policy)


def test_callers_are_spared_only_while_another_model_answers_them() -> None:
    trial = plan(Stage.SHADOW, share=0.0, stand_in=Colour.GREEN)
    assert spares(trial, Colour.BLUE)
    assert not spares(trial, Colour.GREEN), "it is the one that answers"
    assert not spares(plan(Stage.CANARY, share=0.05, stand_in=Colour.GREEN), Colour.BLUE)
    assert not spares(plan(Stage.DEGRADED, share=0.0), Colour.BLUE), "only the fallback answers: the sooner the better"
    assert not spares(plan(Stage.SERVING, share=1.0), Colour.BLUE)
