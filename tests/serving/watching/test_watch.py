"""A gateway's own eye: armed from the release, cleared with each plan, and one trip for each epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from failsoft.health.monitor import HealthPolicy, Status
from failsoft.health.signals import Level, SignalPolicy
from failsoft.health.window import Outcome
from failsoft.serving.plan.plan import Arm, Colour, Stage
from failsoft.serving.watching.outcomes import Seen
from failsoft.serving.watching.watch import Watch
from tests.serving.fakes import plan


@dataclass(frozen=True)
class Rates:
    weak_fraction: float
    samples: int = 700
    oov_fraction: float = 0.06
    oov_mean: float | None = None
    words_mean: float | None = 7.0
    label_mix: Mapping[str, float] = field(default_factory=lambda: {"play": 0.5, "stop": 0.5})
    latency_p95_ms: float | None = 15.0
    accuracy: float | None = 0.95


class Trips:
    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []

    def __call__(self, epoch: int, why: str) -> None:
        self.seen.append((epoch, why))


def watch_of(trips: Trips, *, healthy: float = 0.01, signals: SignalPolicy | None = None) -> Watch:
    watch = Watch(HealthPolicy(), trips, signals)
    watch.arm("r1", Rates(healthy))
    watch.follow(plan(epoch=1))
    return watch


def feed(watch: Watch, outcome: Outcome, count: int, *, epoch: int = 1, **more: Any) -> None:
    for _ in range(count):
        watch.record(Seen(epoch=epoch, arm=Arm.SUBJECT, outcome=outcome, latency_ms=5.0, **more))


def test_a_silently_bad_model_trips_once_and_says_how_bad_it_is() -> None:
    trips = Trips()
    watch = watch_of(trips)
    feed(watch, Outcome.GOOD, 10)
    feed(watch, Outcome.WEAK, 50)
    assert [epoch for epoch, _ in trips.seen] == [1]
    assert "10 bad of 20" in trips.seen[0][1]
    assert trips.seen[0][1].endswith(": 10 weak")


def test_shed_and_hopeless_input_never_trip() -> None:
    trips = Trips()
    watch = watch_of(trips)
    feed(watch, Outcome.SHED, 500)
    feed(watch, Outcome.BAD_INPUT, 500)
    assert trips.seen == []
    assert watch.verdict().status is Status.NO_VERDICT


def test_other_weights_start_with_an_empty_window_and_an_armed_trip() -> None:
    trips = Trips()
    watch = watch_of(trips)
    feed(watch, Outcome.WEAK, 30)
    watch.follow(replace(plan(epoch=2), load_generation={Colour.BLUE: 2, Colour.GREEN: 0}))
    assert watch.verdict().total == 0
    feed(watch, Outcome.WEAK, 30, epoch=2)
    assert [epoch for epoch, _ in trips.seen] == [1, 2]


def test_another_stage_starts_with_an_empty_window() -> None:
    watch = watch_of(Trips())
    watch.follow(plan(Stage.CANARY, epoch=2, share=0.05))
    feed(watch, Outcome.GOOD, 30, epoch=2)
    watch.follow(plan(Stage.RAMP_20, epoch=3, share=0.2))
    assert watch.verdict().total == 0


def test_a_plan_that_only_fits_the_share_keeps_the_window_and_what_is_under_way_still_counts() -> None:
    trips = Trips()
    watch = watch_of(trips)
    watch.follow(plan(Stage.RAMP_20, epoch=2, share=0.2))
    for epoch in range(2, 22):  # replicas come and go
        watch.follow(plan(Stage.RAMP_20, epoch=epoch, share=0.01 * epoch))
        feed(watch, Outcome.WEAK, 1, epoch=max(2, epoch - 1))
    assert [len(trips.seen), watch.verdict().total] == [1, 20]


def test_the_same_plan_told_again_keeps_the_window() -> None:
    watch = watch_of(Trips())
    feed(watch, Outcome.GOOD, 30)
    watch.follow(plan(epoch=1))
    assert watch.verdict().total == 30


def test_late_news_from_an_older_epoch_is_dropped() -> None:
    trips = Trips()
    watch = watch_of(trips)
    watch.follow(plan(Stage.RAMP_20, epoch=2, share=0.2))
    feed(watch, Outcome.ERROR, 100, epoch=1)
    assert watch.verdict().total == 0
    assert trips.seen == []


def test_a_release_whose_healthy_rate_would_trip_is_refused_in_words_and_the_watch_goes_on() -> None:
    trips = Trips()
    watch = watch_of(trips, healthy=0.18)
    assert watch.refusal is not None
    assert "r1" in watch.refusal
    assert "41% is used" in watch.refusal
    feed(watch, Outcome.ERROR, 30)
    assert len(trips.seen) == 1


def test_arming_replaces_an_older_refusal() -> None:
    watch = watch_of(Trips(), healthy=0.18)
    watch.arm("r2", Rates(0.01))
    assert watch.refusal is None


def test_a_release_without_a_baseline_is_not_called_armed() -> None:
    watch = watch_of(Trips(), healthy=float("nan"))
    assert watch.refusal is not None


def test_a_model_that_takes_twice_its_releases_time_trips_far_below_the_deadline() -> None:
    trips = Trips()
    watch = watch_of(trips)
    feed(watch, Outcome.GOOD, 60, model_ms=20.0)
    assert trips.seen == []
    feed(watch, Outcome.GOOD, 60, model_ms=60.0)
    ((_, why),) = trips.seen
    assert why.startswith("latency: ")


def test_texts_that_travelled_together_are_given_the_time_of_as_many() -> None:
    trips = Trips()
    feed(watch_of(trips), Outcome.GOOD, 200, model_ms=60.0, together=4)
    assert trips.seen == []


def test_a_drift_of_labels_or_of_words_is_seen_in_the_status_and_trips_only_where_that_is_configured() -> None:
    trips = Trips()
    watch = watch_of(trips)
    feed(watch, Outcome.GOOD, 600, model_ms=5.0, label="play", oov_share=0.9)
    assert trips.seen == []
    assert set(watch.status()["warnings"]) == {"label_mix", "oov"}
    watch = watch_of(trips, signals=SignalPolicy(label_mix=Level.TRIP))
    feed(watch, Outcome.GOOD, 600, model_ms=5.0, label="play")
    assert trips.seen[0][1].startswith("label_mix: ")


def test_texts_and_answers_are_shown_beside_those_of_the_release_and_forgotten_with_other_weights() -> None:
    watch = watch_of(Trips())
    feed(watch, Outcome.GOOD, 100, model_ms=5.0, label="play", oov_share=0.5, words=14.0)
    shown = watch.status()["beside_baseline"]
    assert shown["words"] == {"live": 14.0, "healthy": 7.0}
    assert shown["oov"] == {"live": 0.5, "healthy": 0.06}
    watch.follow(replace(plan(epoch=2), stage=Stage.CANARY))
    assert watch.status()["beside_baseline"]["answers"] == 100
    watch.follow(replace(plan(epoch=3), load_generation={Colour.BLUE: 9}))
    assert watch.status()["beside_baseline"]["answers"] == 0
    watch.arm("r2", None)
    assert watch.status()["beside_baseline"] is None


def test_one_callers_bad_wave_trips_nothing_and_is_told_once() -> None:
    trips = Trips()
    watch = watch_of(trips)
    for turn in range(300):
        feed(watch, Outcome.GOOD, 1, caller=1 + turn % 9)
        feed(watch, Outcome.WEAK if turn > 50 else Outcome.GOOD, 1, caller=0)
    assert trips.seen == []
    assert len(watch.newly_apart()) == 1
    assert watch.newly_apart() == []
    assert watch.holds_back(0) is not None
    assert watch.holds_back(1) is None


def test_traffic_that_had_to_be_repaired_is_seen_in_the_status_and_trips_nothing() -> None:
    trips = Trips()
    watch = watch_of(trips)
    feed(watch, Outcome.GOOD, 200, repaired=True)
    assert trips.seen == []
    assert set(watch.status()["warnings"]) == {"repaired"}
