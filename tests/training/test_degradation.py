from __future__ import annotations

from pathlib import Path

from failsoft.health.ledger import read_ledger
from failsoft.training.degradation import Degradation, DegradationKind, Degradations
from failsoft.training.loop import LoopPlan
from failsoft.training.summary import summarise
from tests.training.toys import toy_loop

Said = list[tuple[str, str, dict[str, object]]]


def listened() -> tuple[Said, Degradations]:
    said: Said = []
    return said, Degradations(lambda kind, why, **data: said.append((kind, why, data)))


def half(level: str = "half", *, name: str = "") -> Degradation:
    return Degradation(
        kind=DegradationKind.MEMORY,
        name=name,
        cause="out of memory at batch 7",
        level=level,
        cost="twice the passes",
        way_back="500 quiet steps",
        details={"micro_batch": 4},
    )


def test_a_degradation_is_told_with_cause_level_cost_and_way_back() -> None:
    said, open_ = listened()
    open_.began(half())
    ((kind, why, data),) = said
    assert (kind, why) == ("degradation_began", "out of memory at batch 7")
    told = {"level": "half", "cost": "twice the passes", "way_back": "500 quiet steps", "micro_batch": 4}
    assert data == {"degradation": "memory_rung", "name": ""} | told


def test_saying_the_same_again_is_silent_and_another_level_is_a_change() -> None:
    said, open_ = listened()
    for level in ("half", "half", "quarter", "quarter"):
        open_.began(half(level))
    assert [(kind, data.get("level"), data.get("level_before")) for kind, _, data in said] == [
        ("degradation_began", "half", None),
        ("degradation_changed", "quarter", "half"),
    ]
    assert [one.level for one in open_.open] == ["quarter"]


def test_what_had_not_begun_ends_in_silence_and_what_ended_can_begin_again() -> None:
    said, open_ = listened()
    open_.ended(DegradationKind.MEMORY, why="quiet")
    open_.began(half())
    open_.ended(DegradationKind.MEMORY, why="quiet")
    open_.ended(DegradationKind.MEMORY, why="quiet")
    open_.began(half())
    assert [kind for kind, _, _ in said] == ["degradation_began", "degradation_ended", "degradation_began"]


def test_two_of_a_kind_are_told_apart_by_name() -> None:
    said, open_ = listened()
    open_.began(half(name="a"))
    open_.began(half(name="b"))
    open_.ended(DegradationKind.MEMORY, name="a", why="quiet")
    assert [one.name for one in open_.open] == ["b"]
    assert said[-1][2] == {"degradation": "memory_rung", "name": "a"}


def test_a_rank_that_speaks_for_itself_says_which() -> None:
    said: Said = []
    Degradations(lambda kind, why, **data: said.append((kind, why, data)), rank=1).began(half())
    assert said[0][2]["rank"] == 1


def test_a_run_with_fewer_workers_than_it_would_like_is_degraded_from_its_first_batch_to_its_last(
    tmp_path: Path,
) -> None:
    plan = LoopPlan(total_batches=6, seed=3, full_world=4)
    toy_loop(tmp_path, plan=plan).run()
    found = summarise(read_ledger(tmp_path / "ledger.jsonl").events, run=tmp_path.name).degraded
    assert found.fraction_of_batches == 1.0
    (one,) = found.standing
    assert (one.kind, one.level, one.data["world"]) == ("smaller_world", "1 of 4 workers", 1)
