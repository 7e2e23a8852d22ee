"""A run that is told to leave, seen from its supervisor."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
from failsoft.errors import NoProgressError, PreemptedError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Event, Ledger, Side, read_ledger
from failsoft.training.survival.notice import drop_notice
from failsoft.training.survival.supervise import RestartPolicy
from train_jobs.attempts import Attempts

POLICY = RestartPolicy(backoff=BackoffPolicy(jitter_fraction=0.0))


class Desk:
    """A run of 30 batches without Ray: the test says what each attempt does."""

    def __init__(self, root: Path) -> None:
        self.home, self.clock = Home(root=root), ManualClock()
        self.ledger = Ledger(self.home.ledger, self.clock, side=Side.TRAINING, subject="run")
        self.attempts = Attempts(home=self.home, run="run", clock=self.clock, total_batches=lambda: 30)

    def checkpoint(self, position: int) -> None:
        store = self.home.checkpoints("run", self.clock)
        meta = {"position": position, "step": position, "healthy": True}
        store.publish(f"position-{position:012d}", lambda folder: folder.joinpath("x").touch(), meta=meta)
        self.ledger.record("checkpoint_published", "", position=position)

    def supervise(self, *attempts: Callable[[], str | None]) -> None:
        script = iter(attempts)

        def run_once() -> str | None:
            return next(script)()

        self.attempts.until_done(run_once, policy=POLICY, rng=random.Random(1))

    def finish(self) -> None:
        self.checkpoint(30)

    def killed(self) -> str:
        return "a worker died"

    def killed_far(self) -> str:
        self.checkpoint(20)
        return self.killed()

    def moved(self) -> None:
        self.ledger.record("notice_heard", "Ray drains 3f5a")
        self.ledger.record("preempted", "Ray drains 3f5a", saved=True)

    def hurried(self) -> str:
        """Told, and dead of it before it could save: of its loader, of a peer."""
        self.ledger.record("notice_heard", "SIGTERM to process 7")
        self.ledger.record("worker_failed", "a loader's worker died", error="RuntimeError: loader", position=4)
        return "a worker died"

    def told(self) -> None:
        drop_notice(self.home.run("run"), "preStop")
        self.moved()

    def began_anew(self) -> str:
        self.ledger.record("run_started", "from the beginning", position=0)
        return "a worker died"

    def events(self, kind: str) -> list[Event]:
        return [event for event in read_ledger(self.home.ledger).events if event.kind == kind]


def test_workers_that_were_moved_are_replaced_at_once_and_as_often_as_it_takes(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    start_s = desk.clock.monotonic_s()
    desk.supervise(desk.moved, desk.hurried, desk.moved, desk.hurried, desk.finish)
    assert desk.clock.monotonic_s() == start_s
    assert [event.why for event in desk.events("attempt_failed")][:2] == ["Ray drains 3f5a", "SIGTERM to process 7"]


def test_moving_touches_neither_the_waits_nor_the_budget_of_real_failures(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.supervise(desk.killed, desk.moved, desk.moved, desk.moved, desk.killed, desk.moved, desk.finish)
    assert [event.data["wait_s"] for event in desk.events("attempt_failed")] == [10.0, 0.0, 0.0, 0.0, 30.0, 0.0]


def test_a_run_that_is_told_to_leave_starts_no_further_attempt_and_says_where_it_goes_on(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.checkpoint(20)
    with pytest.raises(PreemptedError, match="Ray drains 3f5a; the same command goes on from batch 20"):
        desk.supervise(desk.told)
    (left,) = desk.events("run_left")
    assert left.data["position"] == 20
    assert desk.events("run_stopped") == []


def test_a_run_that_had_all_batches_when_it_was_told_is_done(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    def told_at_the_end() -> None:
        desk.finish()
        desk.told()

    desk.supervise(told_at_the_end)


def test_a_run_that_is_told_while_it_waits_does_not_wait_longer(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    def killed_after_the_notice() -> str:
        drop_notice(desk.home.run("run"), "preStop")
        return "a worker died"

    with pytest.raises(PreemptedError, match="a worker died; the same command goes on from batch 0"):
        desk.supervise(killed_after_the_notice)


def test_a_job_that_begins_with_batch_0_again_although_a_checkpoint_is_there_is_stopped_loudly(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.checkpoint(20)
    with pytest.raises(NoProgressError, match="began again with batch 0 although a checkpoint at batch 20 was there"):
        desk.supervise(desk.began_anew)


def test_a_planned_resize_is_neither_waited_for_nor_charged_to_anything(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    def grown() -> None:
        desk.ledger.record("resize_asked", "planned resize from 1 to 2 workers", workers=1, to=2)
        desk.ledger.record("notice_heard", "planned resize from 1 to 2 workers")
        desk.ledger.record("preempted", "planned resize from 1 to 2 workers", saved=True)

    desk.supervise(desk.killed, grown, grown, grown, desk.killed, grown, desk.finish)
    assert [event.data["wait_s"] for event in desk.events("attempt_failed")] == [10.0, 0.0, 0.0, 0.0, 30.0, 0.0]


def test_workers_that_die_although_a_resize_was_asked_for_have_failed(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    def killed_before_it_heard() -> str:
        desk.ledger.record("resize_asked", "planned resize from 1 to 2 workers", workers=1, to=2)
        return "a worker died"

    desk.supervise(killed_before_it_heard, desk.finish)
    assert [event.data["wait_s"] for event in desk.events("attempt_failed")] == [10.0]


def test_the_one_immediate_retry_that_ray_had_no_room_for_is_made_with_fewer_workers(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    def node_lost() -> str:
        desk.ledger.record("room_lost", "the nodes that are left hold 1 of 2 workers at most", fit=1, workers=2)
        return "a worker died"

    desk.supervise(node_lost, desk.killed, desk.killed_far, desk.killed, desk.finish)
    assert [event.data["wait_s"] for event in desk.events("attempt_failed")] == [0.0, 10.0, 10.0, 30.0]


@pytest.mark.parametrize("lost", ["controller_lost", "driver_lost"])
@pytest.mark.parametrize("saved", [False, True])
def test_workers_that_ray_ends_since_what_led_them_died_were_not_told_to_leave(
    tmp_path: Path, lost: str, saved: bool
) -> None:
    desk = Desk(tmp_path)

    def leaderless() -> str:
        desk.ledger.record("notice_heard", "SIGTERM to process 7")
        desk.ledger.record("worker_failed", "no answer to a report", error="RayError: no answer", position=4)
        if saved:
            desk.ledger.record("preempted", "SIGTERM to process 7", saved=True)
        desk.ledger.record(lost, "it died")
        return "it died"

    with pytest.raises(NoProgressError, match="3 attempts in a row ended without a checkpoint"):
        desk.supervise(leaderless, leaderless, leaderless)
    assert [event.data["wait_s"] for event in desk.events("attempt_failed")] == [10.0, 30.0, 0.0]


def test_what_workers_of_a_dead_driver_say_last_is_not_said_by_those_of_the_next(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    def killed_after_their_last_words() -> str:
        desk.ledger.record("notice_heard", "SIGTERM to process 7")
        desk.ledger.record("worker_failed", "no answer to a report", error="RayError: no answer", position=4)
        desk.ledger.record("workers_chosen", "2 of 2")
        return "a worker died"

    desk.supervise(killed_after_their_last_words, killed_after_their_last_words, desk.finish)
    assert [event.data["wait_s"] for event in desk.events("attempt_failed")] == [10.0, 30.0]
