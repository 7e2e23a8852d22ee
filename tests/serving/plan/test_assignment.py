"""Who gets the subject, for each kind of key that a request may be assigned by."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from failsoft.health.clock import SystemClock
from failsoft.health.window import Outcome
from failsoft.serving.plan.plan import Arm, Colour, RoutingPlan, Stage, choose_arm
from failsoft.serving.several import answer_all
from failsoft.serving.web.messages import PredictRequest
from tests.serving.counter import Counter as Gateway
from tests.serving.fakes import good, plan

COUNT, BINS = 100_000, 16
CHANCE = random.Random(5)
KEYS = {
    "header": [f"{CHANCE.getrandbits(64):016x}" for _ in range(COUNT)],
    "field": [f"user-{number}" for number in range(COUNT)],
    "request id": [f"{CHANCE.getrandbits(128):032x}/0" for _ in range(COUNT)],
}
"""Sessions that a proxy numbers at random, users in order, and requests that were named when they came."""
UP = ((Stage.CANARY, 0.05), (Stage.RAMP_20, 0.2), (Stage.RAMP_50, 0.5), (Stage.SERVING, 1.0))


def at(share: float, stage: Stage = Stage.CANARY) -> RoutingPlan:
    return plan(stage, share=share, stand_in=Colour.GREEN)


def bin_of(key: str) -> int:
    """In which of the equal parts of the ramp this key changes over; found as a caller would see it."""
    low, high = 0, BINS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if choose_arm(at(middle / BINS), key) is Arm.SUBJECT else (middle, high)
    return low


@pytest.mark.parametrize("kind", KEYS)
def test_100_000_keys_of_each_kind_change_over_evenly_all_along_the_ramp(kind: str) -> None:
    found, due = Counter(map(bin_of, KEYS[kind])), COUNT / BINS
    chi_squared = sum((found[part] - due) ** 2 / due for part in range(BINS))
    assert chi_squared < 37.7  # 15 degrees of freedom, exceeded by chance once in 1,000
    assert chi_squared > 3.5  # and this little as rarely: keys that were dealt out in turn would be no hash


@pytest.mark.parametrize("kind", KEYS)
def test_up_the_ramp_nobody_goes_back_and_a_trip_takes_all_at_once(kind: str) -> None:
    some = KEYS[kind][:20_000]
    stages = [{key for key in some if choose_arm(at(share, stage), key) is Arm.SUBJECT} for stage, share in UP]
    assert all(low < high for low, high in pairwise(stages))
    assert stages[-1] == set(some)
    again = replace(at(0.2, Stage.RAMP_20), epoch=99, why="fitted to its replicas and back")
    assert {key for key in some if choose_arm(again, key) is Arm.SUBJECT} == stages[1]
    fallen = plan(Stage.DEGRADED, share=0.0, stand_in=Colour.GREEN)
    assert not any(choose_arm(fallen, key) is Arm.SUBJECT for key in some)


@pytest.mark.anyio
async def test_a_key_is_taken_from_the_header_then_from_the_field_then_from_the_request_id() -> None:
    """What is asked is seen at the models: which one got the request, as its key alone would have it."""
    gateway = Gateway(at(0.5, Stage.RAMP_50))
    gateway.green.answer = good("r0")
    asks = [PredictRequest(text="a", request_id=f"r{number}", key=f"k{number}") for number in range(60)]
    for header, with_key in ((True, True), (False, True), (False, False)):
        gateway.notes.seen.clear()
        for number, ask in enumerate(asks):
            kept = ask if with_key else ask.model_copy(update={"key": None})
            whole = kept.keyed_by(f"h{number}" if header else None)
            await answer_all(gateway.answerer, whole, request_id=str(ask.request_id), clock=SystemClock())
        named = [f"h{number}" if header else f"k{number}" if with_key else f"r{number}/0" for number in range(60)]
        expected = [(choose_arm(gateway.plan, key), Outcome.GOOD) for key in named]
        assert gateway.noted == expected
        assert len(set(expected)) == 2
