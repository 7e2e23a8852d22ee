"""A gateway's own eye: armed from the release, cleared with each plan, and one trip for each epoch."""

from __future__ import annotations

from dataclasses import dataclass

from failsoft.health.monitor import HealthPolicy, Status
from failsoft.health.window import Outcome
from failsoft.serving.watch import Watch
from tests.serving.fakes import plan


@dataclass(frozen=True)
class Rates:
    weak_fraction: float


class Trips:
    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []

    def __call__(self, epoch: int, why: str) -> None:
        self.seen.append((epoch, why))


def watch_of(trips: Trips, *, healthy: float = 0.01, policy: HealthPolicy | None = None) -> Watch:
    watch = Watch(policy or HealthPolicy(), trips)
    watch.arm("r1", Rates(healthy))
    watch.follow(plan(epoch=1))
    return watch


def feed(watch: Watch, outcome: Outcome, count: int, *, epoch: int = 1) -> None:
    for _ in range(count):
        watch.record(epoch, outcome)


def test_a_silently_bad_model_trips_once_and_says_how_bad_it_is() -> None:
    trips = Trips()
    watch = watch_of(trips)
    feed(watch, Outcome.GOOD, 10)
    feed(watch, Outcome.WEAK, 50)
    assert [epoch for epoch, _ in trips.seen] == [1]
    assert "bad of 20" in trips.seen[0][1]


def test_shed_and_hopeless_input_never_trip() -> None:
    trips = Trips()
    watch = watch_of(trips)
    feed(watch, Outcome.SHED, 500)
    feed(watch, Outcome.BAD_INPUT, 500)
    assert trips.seen == []
    assert watch.verdict().status is Status.NO_VERDICT


def test_a_new_epoch_starts_with_an_empty_window_and_an_armed_trip() -> None:
    trips = Trips()
    watch = watch_of(trips)
    feed(watch, Outcome.WEAK, 30)
    watch.follow(plan(epoch=2))
    assert watch.verdict().total == 0
    feed(watch, Outcome.WEAK, 30, epoch=2)
    assert [epoch for epoch, _ in trips.seen] == [1, 2]


def test_the_same_plan_told_again_keeps_the_window() -> None:
    watch = watch_of(Trips())
    feed(watch, Outcome.GOOD, 30)
    watch.follow(plan(epoch=1))
    assert watch.verdict().total == 30


def test_late_news_from_an_older_epoch_is_dropped() -> None:
    trips = Trips()
    watch = watch_of(trips)
    watch.follow(plan(epoch=2))
    feed(watch, Outcome.ERROR, 100, epoch=1)
    assert watch.verdict().total == 0
    assert trips.seen == []


def test_a_release_whose_healthy_rate_would_trip_is_refused_in_words_and_the_watch_goes_on() -> None:
    trips = Trips()
    watch = watch_of(trips, healthy=0.18)
    assert watch.refusal is not None
    assert "r1" in watch.refusal
    assert "raise max_bad_fraction" in watch.refusal
    feed(watch, Outcome.ERROR, 30)
    assert len(trips.seen) == 1


def test_arming_replaces_an_older_refusal() -> None:
    watch = watch_of(Trips(), healthy=0.18)
    watch.arm("r2", Rates(0.01))
    assert watch.refusal is None


def test_a_release_without_a_baseline_is_not_called_armed() -> None:
    watch = watch_of(Trips(), healthy=float("nan"))
    assert watch.refusal is not None
