from __future__ import annotations

import json
import math
from functools import reduce
from operator import add
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock
from failsoft.serving.plan.plan import Arm, Colour, Stage
from failsoft.serving.watching.batch import OutcomeBatch
from failsoft.serving.watching.beside import BINS, NOTHING_BESIDE, Beside, beside_of, divergence
from failsoft.serving.watching.outcomes import OutcomeBuffer, Seen
from tests.serving.counter import Counter
from tests.serving.fakes import good, plan, reading
from tests.serving.worlds import world_at

confidences = st.floats(0.0, 1.0)


def pair(confidence: float, live: float, ms: float = 4.0, live_ms: float = 6.0) -> Beside:
    return Beside.pair(confidence=confidence, live_confidence=live, latency_ms=ms, live_latency_ms=live_ms)


@given(st.lists(st.tuples(confidences, confidences), min_size=1, max_size=40))
def test_pairs_add_up_to_their_means_whatever_their_number(pairs: list[tuple[float, float]]) -> None:
    status = reduce(add, (pair(*one) for one in pairs), NOTHING_BESIDE).status()
    mine, live = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
    assert status["pairs"] == len(pairs)
    assert status["confidence_shift"] == pytest.approx(mine - live, abs=1e-3)
    assert (status["latency_ms"], status["live_latency_ms"]) == (4.0, 6.0)
    assert status["confidence_kl"] >= 0.0


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.1, 1.1])
def test_a_side_without_an_honest_confidence_makes_no_pair(wrong: float) -> None:
    assert pair(wrong, 0.5) == pair(0.5, wrong) == NOTHING_BESIDE
    assert pair(0.5, 0.5, ms=math.nan) == NOTHING_BESIDE
    assert NOTHING_BESIDE.status() == {"pairs": 0}


def test_the_divergence_is_0_for_equal_bins_and_grows_with_their_distance() -> None:
    live, near, far = (0,) * 9 + (900,), (0,) * 8 + (200, 700), (450,) + (0,) * 8 + (450,)
    assert divergence(live, live) == 0.0
    assert 0.0 < divergence(live, near) < divergence(live, far)


@given(confidences, confidences)
def test_it_survives_json_alone_and_in_a_batch(one: float, other: float) -> None:
    both = pair(one, other) + pair(other, one)
    assert beside_of(json.loads(json.dumps(both.as_json()))) == both
    buffer = OutcomeBuffer("g1")
    for beside in (both, NOTHING_BESIDE):
        buffer.record(Seen(epoch=1, arm=Arm.SUBJECT, outcome=good().outcome, latency_ms=1.0, beside=beside))
    (batch,) = buffer.pending()
    assert batch.beside == both
    assert OutcomeBatch.of(json.loads(json.dumps(batch.as_json()))) == batch


def test_a_batch_without_a_pair_says_nothing_of_them() -> None:
    buffer = OutcomeBuffer("g1")
    buffer.record(Seen(epoch=1, arm=Arm.SUBJECT, outcome=good().outcome, latency_ms=1.0))
    assert "beside" not in buffer.pending()[0].as_json()


@pytest.mark.parametrize(
    "spoiled", [{"answers": 2}, {"confidence": math.nan}, {"latency_ms": -1.0}, {"bins": (1,)}, {"bins": (-1, 2) * 5}]
)
def test_sums_that_can_not_be_are_refused_alone_and_in_a_batch(spoiled: dict[str, Any]) -> None:
    body = pair(0.5, 0.5).as_json() | spoiled
    with pytest.raises(ConfigError):
        beside_of(body)
    buffer = OutcomeBuffer("g1")
    buffer.record(Seen(epoch=1, arm=Arm.SUBJECT, outcome=good().outcome, latency_ms=1.0, beside=pair(0.5, 0.5)))
    with pytest.raises(ConfigError):
        OutcomeBatch.of(buffer.pending()[0].as_json() | {"beside": body})


@pytest.mark.anyio
async def test_a_copy_is_compared_with_the_live_answer_which_it_never_touches() -> None:
    counter = Counter(plan(Stage.SHADOW, share=0.0, stand_in=Colour.GREEN))
    counter.green.answer, counter.blue.answer = reading(release="r0", confidence=0.9), reading(confidence=0.6)
    answer = await counter.ask()
    assert (answer.confidence, answer.release) == (0.9, "r0")
    answerer = counter.with_clock(SystemClock())
    await answerer.answer_mirrored(counter.notes.copies[0])
    copy = counter.notes.seen[-1]
    assert (copy.mirrored, copy.beside.answers) == (True, 1)
    assert (copy.beside.confidence, copy.beside.live_confidence) == (0.6, 0.9)
    assert copy.beside.live_latency_ms == answer.latency_ms
    assert copy.beside.bins.index(1) == int(0.6 * BINS)


@pytest.mark.anyio
async def test_a_copy_of_what_the_rules_answered_has_no_confidence_to_be_compared_with() -> None:
    counter = Counter(plan(Stage.SHADOW, share=0.0))
    await counter.ask()
    await counter.with_clock(SystemClock()).answer_mirrored(counter.notes.copies[0])
    assert counter.notes.seen[-1].beside == NOTHING_BESIDE
    assert counter.notes.seen[-1].agreed is not None


def test_the_rollout_shows_the_pairs_of_a_trial_and_forgets_them_with_it() -> None:
    world = world_at(Stage.SHADOW)
    buffer = OutcomeBuffer("g2")
    for _ in range(4):
        seen = Seen(epoch=world.plan.epoch, arm=Arm.SUBJECT, outcome=good().outcome, latency_ms=1.0, mirrored=True)
        buffer.record(seen)
        buffer.record(Seen(**{**vars(seen), "beside": pair(0.5, 0.75)}))
    world.rollout.take(buffer.pending()[0])
    mirror = world.rollout.status()["mirror"]
    assert (mirror["pairs"], mirror["confidence_shift"]) == (4, -0.25)
    assert mirror["confidence_kl"] > 0.0
    world.trip("g1", world.plan.epoch, "ill")
    assert world.rollout.status()["mirror"]["pairs"] == 0
