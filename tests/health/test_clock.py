"""The hand-set clock moves as the real one would."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from failsoft.health.clock import Clock, ManualClock, SystemClock, WorkingTime


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


def test_working_time_stands_while_the_thread_is_kept_waiting_for_a_processor(tmp_path: Path) -> None:
    told = tmp_path / "schedstat"
    told.write_text("5000000 0 1\n")
    clock, plain = WorkingTime(told), SystemClock()
    before_s, plain_s = clock.monotonic_s(), plain.monotonic_s()
    told.write_text("9000000 3000000000 2\n")
    gone_s = (plain.monotonic_s() - plain_s) - (clock.monotonic_s() - before_s)
    assert gone_s == pytest.approx(3.0, abs=1.0), "whatever a busy machine takes between two looks"


@pytest.mark.parametrize("says", [None, "", "nonsense", "1 x 3"])
def test_where_the_system_does_not_tell_working_time_is_plain_time(tmp_path: Path, says: str | None) -> None:
    told = tmp_path / "schedstat"
    if says is not None:
        told.write_text(says)
    assert WorkingTime(told).monotonic_s() == pytest.approx(SystemClock().monotonic_s(), abs=0.5)


def test_sleep_counts_as_work_and_each_thread_has_its_own_time() -> None:
    clock, took_s = WorkingTime(), list[float]()

    def work() -> None:
        began_s = clock.monotonic_s()
        clock.sleep_s(0.03)
        took_s.append(clock.monotonic_s() - began_s)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(took_s) == 3
    assert all(one > 0.02 for one in took_s)
