from __future__ import annotations

from typing import Any

import pytest

from failsoft.health.ledger import Event, Side
from failsoft.training.accounting.degraded import Degraded, degraded
from failsoft.training.accounting.degraded_metrics import as_metrics
from failsoft.training.degradation import Degradation, DegradationKind, Degradations

Story = list[tuple[float, str, dict[str, Any]]]


def events(story: Story) -> list[Event]:
    return [
        Event(at_s=at_s, side=Side.TRAINING, kind=kind, subject="run", why=kind, data=data)
        for at_s, kind, data in story
    ]


def began(position: int, kind: str = "memory_rung", **data: object) -> dict[str, Any]:
    return {"degradation": kind, "name": "", "level": "half", "position": position} | data


def ended(position: int, kind: str = "memory_rung", **data: object) -> dict[str, Any]:
    return {"degradation": kind, "name": "", "position": position} | data


START: Story = [(0.0, "run_started", {"position": 0, "repeated_batches": 0})]


def test_a_run_without_degradations_says_so_and_has_a_fraction_of_nought() -> None:
    found = degraded(events([*START, (10.0, "run_finished", {"position": 100})]))
    assert (found.fraction_of_batches, found.fraction_of_time, found.kinds) == (0.0, 0.0, {})
    assert found.in_words() == "nothing was degraded"


def test_a_run_without_batches_has_no_fraction() -> None:
    assert degraded([]) == Degraded()
    assert degraded([]).fraction_of_batches is None
    assert degraded([]).fraction_of_time is None


def test_batches_and_time_between_beginning_and_end_are_degraded() -> None:
    story: Story = [
        *START,
        (2.0, "degradation_began", began(20)),
        (5.0, "degradation_changed", began(40, level="quarter")),
        (6.0, "degradation_ended", ended(50)),
        (10.0, "run_finished", {"position": 100}),
    ]
    found = degraded(events(story))
    assert (found.batches, found.of_batches, found.seconds, found.of_seconds) == (30, 100, 4.0, 10.0)
    one = found.kinds["memory_rung"]
    assert (one.times, one.batches, one.levels, one.open) == (1, 30, ("half", "quarter"), False)
    assert found.in_words() == "30.0% of 100 batches degraded: memory_rung 30"


def test_what_overlaps_counts_once_in_the_whole_and_once_for_each_kind() -> None:
    story: Story = [
        *START,
        (1.0, "degradation_began", began(10)),
        (2.0, "degradation_began", began(20, "slow_rank")),
        (4.0, "degradation_ended", ended(40)),
        (6.0, "degradation_ended", ended(60, "slow_rank")),
        (10.0, "run_finished", {"position": 100}),
    ]
    found = degraded(events(story))
    assert (found.batches, found.seconds) == (50, 5.0)
    assert {kind: (one.batches, one.seconds) for kind, one in found.kinds.items()} == {
        "memory_rung": (30, 3.0),
        "slow_rank": (40, 4.0),
    }


def test_two_ranks_in_the_same_trouble_are_degraded_until_the_last_is_out_of_it() -> None:
    story: Story = [
        *START,
        (1.0, "degradation_began", began(10, "source_tier", rank=0)),
        (2.0, "degradation_began", began(20, "source_tier", rank=1)),
        (3.0, "degradation_ended", ended(30, "source_tier", rank=0)),
        (5.0, "degradation_ended", ended(50, "source_tier", rank=1)),
        (10.0, "run_finished", {"position": 100}),
    ]
    found = degraded(events(story))
    assert (found.kinds["source_tier"].batches, found.kinds["source_tier"].seconds) == (40, 4.0)


def test_a_death_ends_what_was_open_at_the_last_sign_of_life_and_repeated_batches_count_as_they_ran() -> None:
    story: Story = [
        *START,
        (2.0, "degradation_began", began(20)),
        # killed at 8 s, in batch 80; the last checkpoint was that of batch 50
        (20.0, "workers_up", {"position": 0}),
        (21.0, "run_started", {"position": 50, "repeated_batches": 30, "last_seen_s": 8.0}),
        (26.0, "run_finished", {"position": 100}),
    ]
    found = degraded(events(story))
    assert (found.batches, found.of_batches) == (60, 80 + 50)
    assert (found.seconds, found.of_seconds) == (6.0, 8.0 + 5.0)
    assert not found.kinds["memory_rung"].open


def test_what_is_taken_up_again_after_a_restart_begins_again() -> None:
    story: Story = [
        *START,
        (2.0, "degradation_began", began(20)),
        (4.0, "peer_lost", {"position": 40}),
        (20.0, "workers_up", {}),
        (20.5, "degradation_began", began(0)),  # before the state is read
        (21.0, "run_started", {"position": 40, "repeated_batches": 0}),
        (27.0, "run_finished", {"position": 100}),
    ]
    found = degraded(events(story))
    assert (found.batches, found.of_batches, found.kinds["memory_rung"].times) == (80, 100, 2)
    assert found.kinds["memory_rung"].open


def test_a_run_that_ends_while_degraded_is_said_to_be_so() -> None:
    story: Story = [*START, (5.0, "degradation_began", began(50)), (10.0, "run_stopped", {"position": 100})]
    found = degraded(events(story))
    assert (found.batches, found.kinds["memory_rung"].open) == (50, True)
    assert "still so" in found.in_words()


def test_a_run_that_goes_on_is_counted_up_to_where_it_was_seen() -> None:
    story: Story = [*START, (5.0, "degradation_began", began(50))]
    found = degraded(events(story), seen_at_s=9.0, seen_position=90)
    assert (found.batches, found.of_batches, found.seconds, found.of_seconds) == (40, 90, 4.0, 9.0)


def test_batches_that_are_met_again_after_a_rollback_count_each_time() -> None:
    back = {"position": 60, "replayed_from": 40, "undone_steps": 15, "snapshot_position": 40}
    story: Story = [
        *START,
        (1.0, "degradation_began", began(10)),
        (6.0, "rolled_back", back),
        (12.0, "run_finished", {"position": 100}),
    ]
    found = degraded(events(story))
    assert (found.batches, found.of_batches) == (50 + 60, 60 + 60)


def test_the_word_of_a_rank_that_lags_counts_no_batch_twice() -> None:
    story: Story = [
        *START,
        (1.0, "degradation_began", began(10, rank=0)),
        (1.0, "degradation_began", began(9, rank=1)),
        (10.0, "run_finished", {"position": 100}),
    ]
    assert degraded(events(story)).batches == 90


def test_metrics_name_the_kind_and_leave_out_what_is_not_known() -> None:
    story: Story = [*START, (5.0, "degradation_began", began(50)), (10.0, "run_finished", {"position": 100})]
    text = as_metrics(degraded(events(story)), run='a"b')
    assert 'failsoft_run_degraded_fraction{run="a\\"b",of="batches"} 0.5' in text
    assert 'failsoft_run_degraded_open{run="a\\"b",kind="memory_rung"} 1.0' in text
    assert "degraded_fraction{" not in as_metrics(Degraded(), run="a")


def test_a_slow_rank_that_still_holds_the_others_up_is_in_the_metrics_with_host_factor_and_since_when() -> None:
    whose = {"name": "rank 1", "rank": 1, "host": "node-7", "factor": 1.5}
    story: Story = [
        *START,
        (2.0, "degradation_began", began(20, "slow_rank", **whose)),
        (4.0, "degradation_changed", began(40, "slow_rank", **(whose | {"factor": 1.75, "level": "8/16"}))),
    ]
    found = degraded(events(story), seen_at_s=9.0, seen_position=90)
    (one,) = found.standing
    assert (one.kind, one.name, one.level, one.since_s, one.data["factor"]) == (
        "slow_rank",
        "rank 1",
        "8/16",
        2.0,
        1.75,
    )
    text = as_metrics(found, run="r")
    assert 'failsoft_run_slow_rank_factor{run="r",rank="1",host="node-7"} 1.75' in text
    assert 'failsoft_run_degraded_since_seconds{run="r",kind="slow_rank",name="rank 1"} 2.0' in text
    ended_story = [*story, (6.0, "degradation_ended", ended(60, "slow_rank", name="rank 1"))]
    assert degraded(events(ended_story)).standing == ()


def test_what_ranks_agreed_on_ends_when_it_is_told_to_whichever_rank_it_named_as_its_cause() -> None:
    story: Story = [*START]

    def tell(kind: str, why: str, **data: object) -> None:
        story.append((float(len(story)), kind, {"position": 10 * len(story), "cause": why} | data))

    def short(rank: int, level: str) -> Degradation:
        return Degradation(kind=DegradationKind.MEMORY, cause="out of memory", level=level, details={"rank": rank})

    degradations = Degradations(tell)
    degradations.began(short(1, "caches freed"))
    degradations.began(short(0, "micro-batches, 2 a batch"))
    degradations.began(Degradation(kind=DegradationKind.MEMORY, cause="quiet", level="caches freed"))
    degradations.ended(DegradationKind.MEMORY, why="quiet")
    found = degraded(events([*story, (10.0, "run_finished", {"position": 100})]))
    assert (found.batches, found.seconds, found.standing) == (30, 3.0, ())
    assert found.kinds["memory_rung"].open is False


@pytest.mark.parametrize("data", [{}, {"position": 5}, {"degradation": 7, "name": None}])
def test_an_event_that_lost_its_data_breaks_nothing(data: dict[str, Any]) -> None:
    story: Story = [*START, (5.0, "degradation_began", data), (10.0, "run_finished", {"position": 100})]
    assert degraded(events(story)).of_batches == 100
