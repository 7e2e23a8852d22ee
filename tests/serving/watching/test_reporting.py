"""How far the controller's window over all replicas is behind, measured in made-up time. No Ray."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from failsoft.errors import ConfigError, ServingError
from failsoft.health.clock import ManualClock
from failsoft.health.window import Outcome
from failsoft.serving.config import GatewayConfig
from failsoft.serving.plan.plan import Arm
from failsoft.serving.rollout.evidence import OutcomeBatch
from failsoft.serving.watching.outcomes import OutcomeBuffer, Seen
from failsoft.serving.watching.reporting import Reporter
from tests.serving.virtual_time import run_virtually

EVERY_S = GatewayConfig().report_every_s
_TRIP_S = 0.005
"""A call of the controller takes so long, each way half of it."""


@dataclass
class Judge:
    """A controller: says when it counted which answers. Can be away."""

    clock: ManualClock
    counted: list[tuple[float, dict[Outcome, int]]] = field(default_factory=list)
    away: bool = False
    trip_s: float = _TRIP_S
    calls: int = 0

    async def take(self, batches: tuple[OutcomeBatch, ...]) -> None:
        self.calls += 1
        await asyncio.sleep(self.trip_s / 2)
        if self.away:
            raise ServingError("away")
        for batch in batches:
            self.counted.append((self.clock.monotonic_s(), dict(batch.outcomes)))
        await asyncio.sleep(self.trip_s / 2)

    def moments(self, outcome: Outcome) -> list[float]:
        """When each such answer was counted, in order."""
        return [at_s for at_s, outcomes in self.counted for _ in range(outcomes.get(outcome, 0))]


@dataclass
class Replica:
    """A gateway's buffer and reporter before a judge, in made-up time."""

    every_s: float = EVERY_S

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.judge = Judge(self.clock)
        self.buffer = OutcomeBuffer("g1")
        self.answered: dict[Outcome, list[float]] = {Outcome.GOOD: [], Outcome.WEAK: []}

    def answer(self, outcome: Outcome) -> None:
        self.answered[outcome].append(self.clock.monotonic_s())
        self.buffer.record(Seen(epoch=1, arm=Arm.SUBJECT, outcome=outcome, latency_ms=1.0))

    async def serve(self, pauses_s: list[float], outcomes: list[Outcome]) -> Reporter:
        """Answer one call after each pause, and then let the last report go out."""
        reporter = Reporter(self.buffer, self.judge.take, clock=self.clock, every_s=self.every_s)
        self.buffer.on_record = reporter.noticed
        running = asyncio.create_task(reporter.run())
        for pause_s, outcome in zip(pauses_s, outcomes, strict=True):
            await asyncio.sleep(pause_s)
            self.answer(outcome)
        await asyncio.sleep(1.0)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return reporter

    def lags_ms(self, outcome: Outcome) -> list[float]:
        """From each answer to the moment when it was counted."""
        pairs = zip(self.answered[outcome], self.judge.moments(outcome), strict=True)
        return [(counted_s - answered_s) * 1000 for answered_s, counted_s in pairs]


def traffic(rate_hz: float, bad: float, *, count: int = 2000, seed: int = 3) -> tuple[list[float], list[Outcome]]:
    rng = random.Random(seed)
    pauses_s = [rng.expovariate(rate_hz) for _ in range(count)]
    return pauses_s, [Outcome.WEAK if rng.random() < bad else Outcome.GOOD for _ in range(count)]


@pytest.mark.parametrize("rate_hz", [1.0, 20.0, 200.0, 2000.0])
@pytest.mark.parametrize("bad", [0.0, 0.02, 0.4, 1.0])
@pytest.mark.parametrize(
    ("trip_s", "good_ms", "bad_ms"), [(0.005, 55.0, 30.0), (0.04, 80.0, 80.0)], ids=["usual", "on a busy machine"]
)
def test_every_answer_is_counted_within_100_ms_and_a_bad_one_as_soon_as_the_way_allows(
    rate_hz: float, bad: float, trip_s: float, good_ms: float, bad_ms: float
) -> None:
    replica = Replica()
    replica.judge.trip_s = trip_s
    reporter = run_virtually(replica.clock, replica.serve(*traffic(rate_hz, bad)))
    lags = {outcome: replica.lags_ms(outcome) for outcome in replica.answered}
    assert max(lags[Outcome.GOOD], default=0.0) <= good_ms + 1e-6
    assert max(lags[Outcome.WEAK], default=0.0) <= bad_ms + 1e-6
    assert sum(map(len, lags.values())) == 2000
    assert 0.0 < reporter.status()["max_ms"] <= 100.0 + 1e-6


def test_a_replica_that_answers_nobody_reports_nothing() -> None:
    replica = Replica()
    run_virtually(replica.clock, replica.serve([0.5], [Outcome.GOOD]))
    assert replica.judge.calls == 1


def test_the_first_bad_answer_after_a_quiet_time_is_sent_at_once() -> None:
    replica = Replica()
    run_virtually(replica.clock, replica.serve([1.0], [Outcome.WEAK]))
    assert replica.lags_ms(Outcome.WEAK) == [pytest.approx(_TRIP_S / 2 * 1000)]


@pytest.mark.parametrize(("right", "within_s"), [(True, EVERY_S), (False, 0.0)])
def test_labels_that_come_when_nobody_asks_any_more_are_reported_all_the_same(right: bool, within_s: float) -> None:
    replica = Replica()

    async def story() -> float:
        told_s: list[float] = []

        def label() -> None:
            told_s.append(replica.clock.monotonic_s())
            replica.buffer.label(epoch=1, arm=Arm.SUBJECT, mirrored=False, right=right, caller=None)

        asyncio.get_running_loop().call_later(0.5, label)
        await replica.serve([], [])
        return told_s[0]

    told_s = run_virtually(replica.clock, story())
    assert [at_s for at_s, _ in replica.judge.counted] == [pytest.approx(told_s + within_s + _TRIP_S / 2)]


def test_a_wave_of_bad_answers_is_no_wave_of_reports() -> None:
    replica = Replica()
    pauses_s, outcomes = traffic(2000.0, 1.0)
    run_virtually(replica.clock, replica.serve(pauses_s, outcomes))
    assert len(replica.judge.counted) <= sum(pauses_s) / 0.02 + 2


def test_what_did_not_get_through_is_sent_again_and_its_age_is_told() -> None:
    replica = Replica()

    async def story() -> dict[str, Any]:
        replica.judge.away = True
        asyncio.get_running_loop().call_later(3.0, setattr, replica.judge, "away", False)
        return (await replica.serve([0.5, 3.0], [Outcome.WEAK, Outcome.GOOD])).status()

    status = run_virtually(replica.clock, story())
    assert [len(replica.judge.moments(outcome)) for outcome in (Outcome.WEAK, Outcome.GOOD)] == [1, 1]
    assert 2500.0 <= status["max_ms"] < 2700.0


def test_reports_closer_than_their_distance_are_refused() -> None:
    with pytest.raises(ConfigError, match="distance"):
        Reporter(OutcomeBuffer("g1"), Judge(ManualClock()).take, clock=ManualClock(), every_s=0.001)


def test_nothing_is_given_up_while_the_controller_is_away_for_half_a_minute() -> None:
    replica = Replica()

    async def story() -> None:
        replica.judge.away = True
        asyncio.get_running_loop().call_later(30.0, setattr, replica.judge, "away", False)
        await replica.serve(*traffic(50.0, 0.02, count=1500))

    run_virtually(replica.clock, story())
    assert replica.buffer.given_up == 0
    assert sum(len(replica.judge.moments(outcome)) for outcome in replica.answered) == 1500
