from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from failsoft.drills.fault import DrillFault, Phase, PlannedFault
from failsoft.drills.shrinking import shrink


def fault(kind: DrillFault, **more: float) -> PlannedFault:
    return PlannedFault(kind=kind, phase=Phase.TRAINING, **more)  # type: ignore[arg-type]


def meets(*kinds: DrillFault) -> Callable[[Sequence[PlannedFault]], bool]:
    return lambda faults: set(kinds) <= {one.kind for one in faults}


FIVE = tuple(
    fault(kind)
    for kind in (DrillFault.NAN, DrillFault.SIGTERM, DrillFault.HANG, DrillFault.CLOCK_JUMP, DrillFault.FULL_DISK)
)


def test_a_planted_bug_that_only_a_pair_meets_shrinks_from_five_faults_to_that_pair() -> None:
    smallest = shrink(FIVE, meets(DrillFault.SIGTERM, DrillFault.FULL_DISK))
    assert [one.kind for one in smallest] == [DrillFault.SIGTERM, DrillFault.FULL_DISK]


@given(st.sets(st.sampled_from(list(DrillFault)), min_size=1, max_size=8), st.data())
def test_what_is_left_is_exactly_the_planted_bug(kinds: set[DrillFault], data: st.DataObject) -> None:
    bug = data.draw(st.sets(st.sampled_from(sorted(kinds)), min_size=1))
    smallest = shrink([fault(kind) for kind in sorted(kinds)], meets(*bug), most_trials=500)
    assert {one.kind for one in smallest} == bug


def test_places_seeds_and_arguments_become_plain_where_it_still_fails_without_them() -> None:
    odd = PlannedFault(
        kind=DrillFault.SPIKE, phase=Phase.TRAINING, at=0.9, seed=7, arguments={"factor": 3.0, "other": 1.0}
    )
    assert shrink([odd], lambda faults: len(faults) == 1) == (fault(DrillFault.SPIKE),)
    assert shrink([odd], lambda faults: faults[0].seed == 7) == (fault(DrillFault.SPIKE, seed=7),)
    kept = shrink([odd], lambda faults: "factor" in faults[0].arguments)
    assert (kept[0].at, kept[0].seed, dict(kept[0].arguments)) == (0.5, 0, {"factor": 3.0, "other": 1.0})


def test_no_set_is_tried_twice_and_the_budget_is_kept() -> None:
    tried: list[tuple[PlannedFault, ...]] = []

    def fails(faults: Sequence[PlannedFault]) -> bool:
        tried.append(tuple(faults))
        return meets(DrillFault.NAN, DrillFault.HANG, DrillFault.FULL_DISK)(faults)

    shrink(FIVE, fails)
    assert len(tried) == len(set(tried))
    tried.clear()
    left = shrink(FIVE, fails, most_trials=3)
    assert len(tried) == 3
    assert set(left) <= set(FIVE)
