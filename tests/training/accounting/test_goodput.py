"""Parts of a run's time against stories whose truth is known, and against any story at all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.health.ledger import Event, Side
from failsoft.training.accounting.goodput import Account, account
from failsoft.training.accounting.stretches import NEXT, SUPERVISOR, Part

Story = tuple[float, str, dict[str, Any]]


def told(*story: Story, seen_at_s: float | None = None) -> Account:
    events = [_event(at_s, kind, "run", data) for at_s, kind, data in story]
    return account([_event(0.0, "run_started", "another", {}), *events], run="run", seen_at_s=seen_at_s)


def _event(at_s: float, kind: str, run: str, data: dict[str, Any]) -> Event:
    return Event(at_s=at_s, side=Side.TRAINING, kind=kind, subject=run, why="", data=data)


def parts_of(result: Account) -> dict[Part, float | None]:
    return {part: result.seconds(part) for part in Part if result.micros[part] != 0}


BEGIN: tuple[Story, ...] = (
    (0.0, "attempt_began", {}),
    (4.0, "workers_up", {}),
    (5.0, "run_started", {"position": 0, "repeated_batches": 0}),
)


def test_a_run_without_events_has_no_time_and_no_ratio() -> None:
    result = told()
    assert (result.wall_s, result.ettr, result.incidents) == (0.0, None, ())


def test_a_run_without_faults_is_start_load_stall_and_work() -> None:
    result = told(
        *BEGIN,
        (15.5, "checkpoint_handed_over", {"position": 10, "stall_s": 0.5}),
        (15.7, "checkpoint_published", {"position": 10}),
        (25.5, "run_finished", {"position": 20}),
    )
    assert parts_of(result) == {Part.PRODUCTIVE: 20.0, Part.STALL: 0.5, Part.START: 4.0, Part.LOAD: 1.0}
    assert result.ettr == pytest.approx(20 / 25.5)
    assert result.over
    assert result.incidents == ()


def test_looks_at_the_model_are_validation_whether_they_succeed_or_fail() -> None:
    result = told(
        *BEGIN,
        (15.5, "validated", {"position": 10, "took_s": 0.5}),
        (26.5, "validation_failed", {"position": 20, "took_s": 1.0}),
        (36.5, "run_finished", {"position": 30}),
    )
    assert parts_of(result) == {Part.PRODUCTIVE: 30.0, Part.VALIDATION: 1.5, Part.START: 4.0, Part.LOAD: 1.0}


def test_a_restart_is_cut_at_the_last_sign_of_life_and_loses_the_work_since_the_checkpoint() -> None:
    result = told(
        *BEGIN,
        (15.0, "checkpoint_handed_over", {"position": 10, "stall_s": 0.0}),
        (25.0, "attempt_failed", {"wait_s": 10.0}),
        (35.2, "attempt_began", {}),
        (39.0, "workers_up", {}),
        (40.0, "run_started", {"position": 10, "repeated_batches": 8, "last_seen_s": 23.0}),
        (60.0, "run_finished", {"position": 30}),
    )
    assert parts_of(result) == {
        Part.PRODUCTIVE: 10.0 + 20.0,
        Part.LOST: 8.0,
        Part.DETECT: 2.0,
        Part.BACKOFF: 10.0,
        Part.START: 4.0 + 0.2 + 3.8,
        Part.LOAD: 2.0,
    }
    (incident,) = result.incidents
    assert (incident.kind, incident.batches, incident.position, incident.after_s) == ("restart", 8, 18, 23.0)
    assert incident.cost_s == pytest.approx(25.0)


def test_work_is_cut_in_proportion_where_no_event_marks_the_checkpoint() -> None:
    result = told(
        *BEGIN,
        (25.0, "worker_failed", {"position": 20}),
        (26.0, "workers_lost", {}),
        (28.0, "workers_up", {}),
        (29.0, "run_started", {"position": 15, "repeated_batches": 5}),
        (34.0, "run_finished", {"position": 20}),
    )
    assert result.seconds(Part.LOST) == 5.0
    assert result.seconds(Part.PRODUCTIVE) == 15.0 + 5.0
    assert (result.seconds(Part.DETECT), result.seconds(Part.BACKOFF)) == (1.0, 0.0)


def test_a_rollback_undoes_the_work_since_its_snapshot_and_the_refused_batches_cost_their_own_time() -> None:
    refusals = [(15.0 + n, "batch_refused", {"position": 10 + n, "took_s": 0.9}) for n in range(1, 4)]
    result = told(
        *BEGIN,
        (15.0, "resumed", {"position": 10}),
        *refusals,
        (18.1, "rolled_back", {"position": 14, "snapshot_position": 5, "undone_steps": 5}),
        (28.1, "run_finished", {"position": 24}),
    )
    assert result.seconds(Part.REFUSED) == pytest.approx(2.7)
    assert result.seconds(Part.UNDONE) == pytest.approx(5.0 + 0.3 + 0.1)
    assert result.seconds(Part.PRODUCTIVE) == pytest.approx(5.0 + 10.0)
    (incident,) = result.incidents
    assert (incident.kind, incident.batches) == ("rollback", 5)
    assert incident.cost_s == pytest.approx(8.1)


def test_what_an_old_ledger_does_not_tell_is_none_and_never_zero() -> None:
    result = told(
        (0.0, "run_started", {"position": 0, "repeated_batches": 0}),
        (5.0, "checkpoint_published", {"position": 5}),
        (6.0, "batch_refused", {"position": 6}),
        (20.0, "run_started", {"position": 5, "repeated_batches": 3}),
        (30.0, "run_finished", {"position": 15}),
    )
    for part in (Part.DETECT, Part.START, Part.LOAD, Part.STALL, Part.REFUSED):
        assert result.seconds(part) is None, part
    assert result.seconds(Part.UNKNOWN) == 14.0
    assert result.incidents[0].micros[Part.DETECT] is None
    assert result.to_json()["parts_s"]["detect a death"] is None


def test_an_old_ledger_with_a_planned_kill_knows_the_death_but_not_how_the_restart_is_cut() -> None:
    result = told(
        (0.0, "run_started", {"position": 0, "repeated_batches": 0}),
        (10.0, "planned_fault", {"fault": "kill_worker", "position": 10}),
        (18.0, "run_started", {"position": 5, "repeated_batches": 5}),
        (28.0, "run_finished", {"position": 15}),
    )
    assert (result.seconds(Part.UNSPLIT), result.seconds(Part.UNKNOWN)) == (8.0, 0.0)
    assert (result.seconds(Part.LOST), result.seconds(Part.PRODUCTIVE)) == (5.0, 15.0)


def test_the_time_between_an_end_and_the_next_start_by_people_is_apart() -> None:
    result = told(
        *BEGIN, (15.0, "run_stopped", {"position": 10}), (115.0, "attempt_began", {}), (116.0, "workers_up", {})
    )
    assert (result.wall_s, result.stood_s, result.over) == (16.0, 100.0, False)


def test_a_run_that_was_told_to_leave_stands_until_somebody_takes_it_up_again() -> None:
    saved = (14.0, "preempted", {"position": 9, "saved": True})
    failed = (15.0, "attempt_failed", {"wait_s": 0.0, "last_seen_s": 14.0, "position": 9})
    left = (15.0, "run_left", {"position": 9, "by": SUPERVISOR})
    result = told(
        *BEGIN, saved, failed, left, (16.0, "network", {}), (500.0, "attempt_began", {}), (504.0, "workers_up", {})
    )
    assert (result.stood_s, result.wall_s) == (485.0, 19.0)
    assert (result.seconds(Part.PRODUCTIVE), result.seconds(Part.DETECT)) == (9.0, 1.0)
    assert result.seconds(Part.START) == 8.0


def test_a_clock_that_is_set_back_is_counted_apart() -> None:
    result = told(*BEGIN, (15.0, "resumed", {}), (5.0, "batch_refused", {"position": 3}), (9.0, "run_finished", {}))
    assert (result.wall_s, result.clock_set_back_s) == (19.0, 10.0)


def test_a_run_at_work_is_counted_until_it_was_last_seen() -> None:
    assert told(*BEGIN, seen_at_s=105.0).seconds(Part.PRODUCTIVE) == 100.0
    assert told(*BEGIN, (6.0, "attempt_failed", {"wait_s": 9.0}), seen_at_s=105.0).wall_s == 6.0


def test_a_false_alarm_is_not_the_end_of_the_work() -> None:
    result = told(*BEGIN, (10.0, "hang", {}), (12.0, "resumed", {"position": 9}), (20.0, "run_finished", {}))
    assert result.seconds(Part.PRODUCTIVE) == 15.0


def test_several_attempts_that_fail_at_the_start_are_one_incident() -> None:
    fails: list[Story] = [(20.0 + 20 * n, "attempt_failed", {"wait_s": 10.0}) for n in range(3)]
    begins: list[Story] = [(30.0 + 20 * n, "attempt_began", {}) for n in range(3)]
    story = sorted([*fails, *begins], key=lambda one: one[0])
    result = told(*BEGIN, (19.0, "worker_failed", {"position": 14}), *story, (72.0, "workers_up", {}))
    assert len(result.incidents) == 1
    assert (result.seconds(Part.BACKOFF), result.seconds(Part.DETECT)) == (30.0, 1.0)
    assert result.seconds(Part.START) == 4.0 + 10.0 + 10.0 + 2.0


class Truth:
    """Plays a run of one-second batches, writes what its writers write, and knows where its time went."""

    def __init__(self) -> None:
        self.at_s = 0.0
        self.position = self.saved = 0
        self.parts: Counter[Part] = Counter()
        self.since_saved_s = 0.0
        self.story: list[Story] = []

    def spend(self, part: Part, seconds: float) -> None:
        self.at_s += seconds
        self.parts[part] += round(seconds * 1e6)

    def tell(self, kind: str, **data: Any) -> None:
        self.story.append((self.at_s, kind, {"position": self.position} | data))

    def work(self, batches: int) -> None:
        self.position += batches
        self.spend(Part.PRODUCTIVE, float(batches))
        self.since_saved_s += batches

    def save(self, stall_s: float) -> None:
        self.spend(Part.STALL, stall_s)
        self.tell("checkpoint_handed_over", stall_s=stall_s)
        self.saved, self.since_saved_s = self.position, 0.0

    def start(self, start_s: float, load_s: float, **data: Any) -> None:
        self.tell("attempt_began")
        self.spend(Part.START, start_s)
        self.tell("workers_up")
        self.spend(Part.LOAD, load_s)
        repeated, self.position = self.position - self.saved, self.saved
        self.tell("run_started", repeated_batches=repeated, **data)

    def die(self, detect_s: float, wait_s: float) -> float:
        last_seen_s = self.at_s
        lost = round(self.since_saved_s * 1e6)
        self.parts += Counter({Part.LOST: lost})
        self.parts[Part.PRODUCTIVE] -= lost
        self.since_saved_s = 0.0
        self.spend(Part.DETECT, detect_s)
        self.tell("attempt_failed", wait_s=wait_s)
        self.spend(Part.BACKOFF, wait_s)
        return last_seen_s


TICKS = st.integers(0, 400).map(lambda ticks: ticks / 8)
LIVES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.lists(TICKS, min_size=5, max_size=5)), max_size=6)


@settings(max_examples=100, deadline=None)
@given(lives=LIVES)
def test_the_account_of_any_number_of_deaths_is_the_truth_to_the_microsecond(
    lives: list[tuple[int, int, list[float]]],
) -> None:
    truth = Truth()
    truth.start(1.0, 2.0)
    for before, after, (stall_s, detect_s, wait_s, start_s, load_s) in lives:
        truth.work(before)
        truth.save(stall_s)
        truth.work(after)
        last_seen_s = truth.die(detect_s, wait_s)
        truth.start(start_s, load_s, last_seen_s=last_seen_s)
    truth.work(3)
    truth.tell("run_finished")
    result = told(*truth.story)
    assert {part: result.micros[part] for part in Part} == {part: truth.parts[part] for part in Part}
    assert len(result.incidents) == len(lives)


ANY_KIND = st.sampled_from(
    [*NEXT, "planned_fault", "batch_refused", "rolled_back", "resumed", "checkpoint_handed_over"]
)
TIMES = st.floats(-50.0, 200.0)
ANY_DATA = st.fixed_dictionaries(
    {},
    optional={
        "position": st.integers(0, 100),
        "repeated_batches": st.integers(0, 30),
        "last_seen_s": TIMES,
        "wait_s": st.floats(0.0, 50.0),
        "took_s": st.floats(0.0, 50.0),
        "stall_s": st.floats(allow_nan=True),
        "snapshot_position": st.integers(0, 100),
        "undone_steps": st.integers(0, 30),
        "by": st.just(SUPERVISOR),
        "fault": st.just("kill_worker"),
        "replayed_from": st.none() | st.integers(0, 100),
    },
)


@settings(max_examples=300, deadline=None)
@given(story=st.lists(st.tuples(TIMES, ANY_KIND, ANY_DATA), max_size=40), seen_at_s=st.none() | TIMES)
def test_the_parts_of_any_story_add_up_to_the_wall_time_and_none_is_negative(
    story: list[Story], seen_at_s: float | None
) -> None:
    result = told(*story, seen_at_s=seen_at_s)
    known = [value for value in result.micros.values() if value is not None]
    assert sum(known) == result.wall_micros == sum(one.length_us for one in result.stretches)
    assert all(value >= 0 for value in known)
    edges = [0, *(one.end_us for one in result.stretches)]
    assert [one.begin_us for one in result.stretches] == edges[:-1]
    of_incidents = Counter(one.incident for one in result.stretches)
    assert all(0 <= index < len(result.incidents) for index in of_incidents if index is not None)
    result.to_json()
