"""Planned faults strike where and when they are planned, and a kill strikes once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from failsoft.errors import ConfigError
from failsoft.health.faults import Fault, FaultKind, FaultPlan, burst


def test_a_fault_strikes_its_rank_at_its_position_only(tmp_path: Path) -> None:
    plan = FaultPlan(faults=(Fault(kind=FaultKind.NAN_BATCH, position=3, rank=1),))
    struck = {(at, rank) for at in range(6) for rank in range(3) if plan.due(position=at, rank=rank, struck=tmp_path)}
    assert struck == {(3, 1)}


def test_a_bad_batch_is_met_again_on_replay_and_a_kill_is_not(tmp_path: Path) -> None:
    plan = FaultPlan(
        faults=(Fault(kind=FaultKind.NAN_BATCH, position=2), Fault(kind=FaultKind.KILL_WORKER, position=2))
    )
    first, again = (plan.due(position=2, rank=0, struck=tmp_path / "marks") for _ in range(2))
    assert [fault.kind for fault in first] == [FaultKind.NAN_BATCH, FaultKind.KILL_WORKER]
    assert [fault.kind for fault in again] == [FaultKind.NAN_BATCH]


def test_the_mark_of_a_kill_is_made_before_it_strikes(tmp_path: Path) -> None:
    """Whoever kills itself afterwards has no more chance to make it."""
    plan = FaultPlan(faults=(Fault(kind=FaultKind.KILL_WORKER, position=0, rank=1),))
    plan.due(position=0, rank=1, struck=tmp_path)
    assert [mark.name for mark in tmp_path.iterdir()] == ["kill_worker-0-1"]


def test_an_empty_plan_breaks_nothing(tmp_path: Path) -> None:
    assert FaultPlan().due(position=0, rank=0, struck=tmp_path) == ()


def test_a_burst_is_the_same_fault_several_times_in_a_row() -> None:
    faults = burst(FaultKind.INF_GRADIENT, first=10, count=3, ranks=(0, 1))
    assert [(fault.position, fault.rank) for fault in faults] == [(10, 0), (10, 1), (11, 0), (11, 1), (12, 0), (12, 1)]


def test_a_plan_survives_its_json() -> None:
    plan = FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=1, count=2))
    assert FaultPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "[5]", "{", '[{"kind": "nope", "position": 1}]', '[{"kind": "nan_batch"}]', '{"kind": "nan_batch"}'),
        *('[{"kind": "nan_batch", "position": -1}]', '[{"kind": "nan_batch", "position": 1.5}]', '[{"kindd": 1}]'),
    ],
)
def test_a_text_that_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        FaultPlan.from_json(text)


def test_a_slow_rank_is_struck_from_its_first_batch_to_its_last() -> None:
    plan = FaultPlan(faults=(Fault(kind=FaultKind.SLOW_RANK, position=3, last=5, rank=1, sample_s=0.25),))
    due = [[len(plan.due(position=at, rank=rank, struck=Path("nowhere"))) for at in range(8)] for rank in range(2)]
    assert due == [[0] * 8, [0, 0, 0, 1, 1, 1, 0, 0]]
    assert FaultPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("wrong", [{"last": 2}, {"sample_s": -1.0}, {"sample_s": float("nan")}])
def test_a_slow_rank_that_could_never_strike_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="not before position"):
        Fault(**{"kind": FaultKind.SLOW_RANK, "position": 3, **wrong})
