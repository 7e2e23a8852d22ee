"""The hand-set clock moves as the real one would."""

from __future__ import annotations

from failsoft.health.clock import Clock, ManualClock, SystemClock


def test_sleeping_on_a_manual_clock_passes_time_at_once() -> None:
    clock = ManualClock(monotonic_s=5.0, wall_s=100.0)
    clock.sleep_s(3.0)
    assert (clock.monotonic_s(), clock.wall_s()) == (8.0, 103.0)


def test_a_jump_of_the_wall_clock_leaves_monotonic_time_alone() -> None:
    clock = ManualClock(monotonic_s=5.0, wall_s=100.0)
    clock.jump_wall(-3600.0)
    assert (clock.monotonic_s(), clock.wall_s()) == (5.0, -3500.0)


def test_the_machines_clock_goes_on() -> None:
    clock: Clock = SystemClock()
    before = clock.monotonic_s()
    clock.sleep_s(0.001)
    assert clock.monotonic_s() > before
    assert clock.wall_s() > 1_700_000_000
