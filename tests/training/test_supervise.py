from __future__ import annotations

import random

import pytest

from failsoft.errors import ConfigError, NoProgressError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.training.supervise import Attempt, Failure, Next, RestartPolicy, next_attempt, supervise

POLICY = RestartPolicy(backoff=BackoffPolicy(jitter_fraction=0.0))


def failed(began: int, reached: int, *failures: Failure) -> Attempt:
    return Attempt(number=1, finished=False, began=began, reached=reached, error="a worker died", failures=failures)


def test_a_finished_attempt_is_the_last() -> None:
    assert next_attempt([Attempt(number=1, finished=True, began=0, reached=9)], POLICY).what is Next.DONE


def test_the_waits_are_10_30_and_90_seconds_while_nothing_moves_after_progress() -> None:
    history, waits = [failed(0, 100)], []
    while (decision := next_attempt(history, POLICY)).what is Next.RETRY:
        waits.append(POLICY.backoff.wait_s(decision.failures_in_a_row, random.Random(1)))
        history.append(failed(100, 100))
    assert waits == [10.0, 30.0, 90.0]
    assert "3 attempts in a row" in decision.why


def test_progress_renews_the_budget() -> None:
    history = [failed(n, n + 1) for n in range(20)]
    decision = next_attempt(history, POLICY)
    assert (decision.what, decision.failures_in_a_row) == (Next.RETRY, 1)


def test_a_checkpoint_that_was_there_before_is_no_progress() -> None:
    assert next_attempt([failed(50, 50)] * 3, POLICY).what is Next.STOP


def test_the_same_error_at_the_same_batch_twice_stops_at_once() -> None:
    bug = Failure(error="KeyError: 'label'", position=7)
    decision = next_attempt([failed(0, 5, bug, bug)], POLICY)
    assert decision.what is Next.STOP
    assert "KeyError: 'label' was raised twice at batch 7" in decision.why


def test_a_fault_that_two_ranks_meet_together_is_no_bug_yet() -> None:
    both = [Failure(error="OSError: Stale file handle", position=7, rank=rank) for rank in (0, 1)]
    assert next_attempt([failed(0, 5, *both)], POLICY).what is Next.RETRY


def test_the_same_error_at_another_batch_is_no_bug_yet() -> None:
    first, second = Failure(error="OSError", position=7), Failure(error="OSError", position=9)
    assert next_attempt([failed(0, 5, first), failed(5, 8, second)], POLICY).what is Next.RETRY


def test_the_supervisor_waits_between_attempts_and_ends_with_the_finished_one() -> None:
    clock, told = ManualClock(), list[float]()
    outcomes = [failed(0, 10), failed(10, 10), Attempt(number=3, finished=True, began=10, reached=30)]
    start_s = clock.monotonic_s()
    last = supervise(
        lambda number: outcomes[number - 1],
        policy=POLICY,
        clock=clock,
        rng=random.Random(1),
        on_failed=lambda _attempt, wait_s, _why: told.append(wait_s),
    )
    assert last.finished
    assert told == [10.0, 30.0]
    assert clock.monotonic_s() - start_s == 40.0


def test_no_progress_in_three_attempts_stops_with_a_diagnosis() -> None:
    with pytest.raises(NoProgressError, match="without a checkpoint beyond batch 0"):
        supervise(lambda _number: failed(0, 0), policy=POLICY, clock=ManualClock(), rng=random.Random(1))


def test_a_supervisor_that_never_tries_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_attempts_without_progress is 0"):
        RestartPolicy(max_attempts_without_progress=0)
