from __future__ import annotations

import random
from dataclasses import replace

import pytest

from failsoft.errors import ConfigError, NoProgressError, PreemptedError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Event, Side
from failsoft.training.survival.supervise import (
    Attempt,
    Failure,
    Next,
    RestartPolicy,
    began_anew,
    next_attempt,
    supervise,
)

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


@pytest.mark.parametrize(
    "name", ["max_attempts_without_progress", "max_bugs_without_progress", "max_preemptions_without_progress"]
)
def test_a_supervisor_that_never_tries_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0"):
        RestartPolicy(**{name: 0})  # type: ignore[arg-type]


KILL = Attempt(number=1, finished=False, began=5, reached=5, error="a worker died")
MOVED = replace(KILL, error="SIGTERM", preempted=True)
FAR = replace(KILL, reached=9)
MOVED_FAR = replace(MOVED, reached=9)
GROWN = replace(KILL, error="planned resize from 1 to 2 workers", resized=True, preempted=True)
NODE_LOST = replace(KILL, room_lost=True)


def bug(position: int) -> Attempt:
    return replace(KILL, failures=(Failure(error="KeyError", position=position),))


@pytest.mark.parametrize(
    ("history", "what", "failures_in_a_row"),
    [
        ([KILL], Next.RETRY, 1),
        ([KILL, KILL], Next.RETRY, 2),
        ([KILL, KILL, KILL], Next.STOP, 0),
        ([FAR, KILL, KILL], Next.RETRY, 3),
        ([KILL, KILL, FAR], Next.RETRY, 1),
        ([bug(1)], Next.RETRY, 1),
        ([bug(1), bug(2)], Next.STOP, 0),
        ([bug(1), KILL], Next.RETRY, 2),
        ([bug(1), KILL, bug(2)], Next.STOP, 0),
        ([KILL, KILL, bug(1)], Next.STOP, 0),
        ([MOVED] * 50, Next.RETRY, 0),
        ([KILL, *[MOVED] * 50, KILL], Next.RETRY, 2),
        ([KILL, MOVED, KILL, MOVED, KILL], Next.STOP, 0),
        ([KILL, KILL, MOVED_FAR, KILL], Next.RETRY, 1),
        ([bug(1), MOVED_FAR, bug(2)], Next.RETRY, 1),
        ([GROWN] * 50, Next.RETRY, 0),
        ([KILL, *[GROWN] * 50, KILL], Next.RETRY, 2),
        ([KILL, GROWN, KILL, GROWN, KILL], Next.STOP, 0),
        ([NODE_LOST], Next.RETRY, 0),
        ([NODE_LOST, KILL], Next.RETRY, 1),
        ([replace(NODE_LOST, reached=9), KILL, KILL], Next.RETRY, 2),
        ([FAR, NODE_LOST], Next.RETRY, 1),
        ([NODE_LOST, NODE_LOST, NODE_LOST], Next.STOP, 0),
        ([replace(MOVED, told_to_leave=True)], Next.LEAVE, 0),
        ([KILL, KILL, replace(KILL, told_to_leave=True)], Next.LEAVE, 0),
        ([replace(MOVED, told_to_leave=True, finished=True)], Next.DONE, 0),
    ],
)
def test_bugs_infrastructure_and_preemption_have_budgets_apart_and_progress_renews_them(
    history: list[Attempt], what: Next, failures_in_a_row: int
) -> None:
    decision = next_attempt(history, POLICY)
    assert (decision.what, decision.failures_in_a_row) == (what, failures_in_a_row), decision.why


def test_preemption_waits_for_nothing_and_leaves_the_waits_of_the_others_alone() -> None:
    outcomes, waits = [FAR, MOVED, KILL, MOVED, KILL, MOVED, replace(KILL, finished=True)], list[float]()
    supervise(
        lambda number: outcomes[number - 1],
        policy=POLICY,
        clock=ManualClock(),
        rng=random.Random(1),
        on_failed=lambda _attempt, wait_s, _why: waits.append(wait_s),
    )
    assert waits == [10.0, 0.0, 30.0, 0.0, 90.0, 0.0]


def test_planned_resizes_are_no_preemptions() -> None:
    policy = replace(POLICY, max_preemptions_without_progress=2)
    assert next_attempt([MOVED, *[GROWN] * 9], policy).what is Next.RETRY


def test_a_lost_node_is_met_at_once_with_the_workers_that_are_left_and_only_then_waited_for() -> None:
    outcomes, waits = [replace(NODE_LOST, reached=9), KILL, KILL, replace(KILL, finished=True)], list[float]()
    supervise(
        lambda number: outcomes[number - 1],
        policy=POLICY,
        clock=ManualClock(),
        rng=random.Random(1),
        on_failed=lambda _attempt, wait_s, _why: waits.append(wait_s),
    )
    assert waits == [0.0, 10.0, 30.0]


def test_a_limit_on_preemptions_stops_a_run_that_never_gets_far_enough_to_save() -> None:
    policy = replace(POLICY, max_preemptions_without_progress=3)
    assert next_attempt([MOVED, MOVED, MOVED_FAR, MOVED, MOVED], policy).what is Next.RETRY
    decision = next_attempt([MOVED_FAR, MOVED, KILL, MOVED, MOVED], policy)
    assert decision.what is Next.STOP
    assert "3 times the workers were told to leave" in decision.why


def test_a_run_that_is_told_to_leave_ends_with_the_batch_it_goes_on_from() -> None:
    leaving = replace(MOVED, told_to_leave=True, error="SIGTERM to process 7")
    with pytest.raises(PreemptedError, match="SIGTERM to process 7; the same command goes on from batch 5"):
        supervise(lambda _number: leaving, policy=POLICY, clock=ManualClock(), rng=random.Random(1))


def event(kind: str, position: int) -> Event:
    return Event(at_s=0.0, side=Side.TRAINING, kind=kind, subject="run", why="", data={"position": position})


@pytest.mark.parametrize(
    ("events", "before", "passed_over"),
    [
        ([("run_started", 0), ("checkpoint_published", 10)], 0, None),
        ([("run_started", 0), ("checkpoint_published", 10), ("run_started", 0)], 0, 10),
        ([("run_started", 0), ("checkpoint_published", 10), ("run_started", 10)], 0, None),
        ([("run_started", 0)], 40, 40),
        ([("run_started", 30)], 40, None),  # an older one than the newest: that was damaged
        ([("checkpoint_quarantined", 0), ("run_started", 0)], 40, None),
        ([("run_started", 40), ("checkpoint_published", 50), ("run_started", 0)], 40, 50),
    ],
)
def test_beginning_anew_although_a_checkpoint_is_there_is_noticed(
    events: list[tuple[str, int]], before: int, passed_over: int | None
) -> None:
    assert began_anew([event(*each) for each in events], checkpoint=before) == passed_over


def test_a_job_that_passes_its_checkpoint_over_is_stopped_before_it_repeats_everything_again() -> None:
    decision = next_attempt([replace(FAR, forgot=40)], POLICY)
    assert decision.what is Next.STOP
    assert "began again with batch 0 although a checkpoint at batch 40 was there" in decision.why


def test_a_run_that_is_told_to_leave_while_it_waits_leaves_at_once() -> None:
    clock, outcomes = ManualClock(), [KILL, KILL]
    with pytest.raises(PreemptedError, match="told to leave before another attempt; the same command goes on from"):
        supervise(
            lambda number: outcomes[number - 1],
            policy=POLICY,
            clock=clock,
            rng=random.Random(1),
            told=lambda: clock.monotonic_s() >= 12.0,
        )
    assert clock.monotonic_s() == 12.0


@pytest.mark.parametrize("data", [{"dropped_bytes": 70_000}, {"position": None}, {"position": "x"}, {"position": -3}])
def test_a_beginning_that_does_not_say_where_is_not_taken_for_batch_0(data: dict[str, object]) -> None:
    told = Event(at_s=1.0, side=Side.TRAINING, kind="run_started", subject="night", why="", data=data)
    assert began_anew([told], checkpoint=40) is None
