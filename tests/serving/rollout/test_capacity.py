"""However replicas come and go: a subject on trial never gets more than those that are ready can carry."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.serving.rollout.stages import NEXT, ON_TRIAL
from tests.serving.worlds import world_at

READY = st.one_of(st.none(), st.sampled_from([0.0, 0.02, 0.2, 0.34, 0.5, 1.0]))


@settings(max_examples=60)
@given(stage=st.sampled_from(sorted(ON_TRIAL)), seen=st.lists(READY, min_size=1, max_size=25), trial=st.booleans())
def test_a_share_never_exceeds_what_was_last_seen_ready_and_an_unknown_one_lets_nothing_grow(
    stage: str, seen: list[float | None], trial: bool
) -> None:
    world = world_at(next(known for known in NEXT if known == stage), trial=trial)
    for ready in seen:
        before, world.ready = world.plan, ready
        world.run(0.5, good=10)
        if world.stage in ON_TRIAL:
            assert world.plan.share <= (before.share if ready is None else ready)
        if ready is None:
            assert world.stage is before.stage
        assert world.stage in (before.stage, NEXT.get(before.stage))
