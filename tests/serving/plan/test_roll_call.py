from __future__ import annotations

from failsoft.health.clock import ManualClock
from failsoft.serving.plan.roll_call import RollCall


def test_each_replica_is_shown_with_the_newest_plan_that_it_said_it_has() -> None:
    clock = ManualClock()
    calls = RollCall(clock)
    calls.heard("g2", 4)
    calls.heard("g1", 4)
    clock.advance(2.0)
    calls.heard("g1", 5)
    assert calls.replicas() == {"g1": {"epoch": 5, "silent_s": 0.0}, "g2": {"epoch": 4, "silent_s": 2.0}}


def test_a_replica_that_is_gone_is_forgotten() -> None:
    clock = ManualClock()
    calls = RollCall(clock)
    calls.heard("g1", 4)
    clock.advance(61.0)
    assert calls.replicas() == {}


def test_a_poll_that_names_no_replica_or_no_plan_tells_nothing() -> None:
    calls = RollCall(ManualClock())
    calls.heard("", 4)
    calls.heard("g1", -1)
    assert calls.replicas() == {}


def test_replicas_that_come_and_go_do_not_fill_the_memory() -> None:
    calls = RollCall(ManualClock())
    for number in range(5000):
        calls.heard(f"g{number}", 1)
    assert len(calls.replicas()) == 4096
