"""Each signal does what its level says, and no more: some trip, some only warn, and load is nobody's fault."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.monitor import HealthMonitor, HealthPolicy, Status
from failsoft.health.panel import SignalPanel
from failsoft.health.signals import Level, SignalPolicy, armed, is_slow, slow_limit_ms
from failsoft.health.window import Outcome


@dataclass(frozen=True, kw_only=True)
class Healthy:
    """How a release behaved."""

    samples: int = 700
    weak_fraction: float = 0.01
    oov_fraction: float = 0.06
    oov_mean: float | None = None
    words_mean: float | None = 7.0
    label_mix: Mapping[str, float] = field(default_factory=lambda: {"play": 0.5, "stop": 0.5})
    latency_p95_ms: float | None = 15.0
    accuracy: float | None = 0.95


def panel(healthy: Healthy | None = None, **levels: Any) -> SignalPanel:
    return SignalPanel(
        HealthPolicy(), SignalPolicy(**levels), release="r1", healthy=Healthy() if healthy is None else healthy
    )


def fed(to: SignalPanel, outcome: Outcome, count: int) -> SignalPanel:
    for _ in range(count):
        to.record(outcome)
    return to


@pytest.mark.parametrize("outcome", [Outcome.WEAK, Outcome.ERROR, Outcome.LATE])
def test_weak_failed_and_late_answers_trip_unless_configured_otherwise(outcome: Outcome) -> None:
    finding = fed(panel(), outcome, 20).verdict()
    assert (finding.status, finding.bad, finding.total) == (Status.DEGRADED, 20, 20)
    name = {Outcome.WEAK: "quality", Outcome.ERROR: "error", Outcome.LATE: "late"}[outcome]
    levels: dict[str, Any] = {name: Level.WARN}
    warned = fed(panel(**levels), outcome, 50)
    assert warned.verdict().status is Status.HEALTHY
    assert "50 bad of 50" in warned.warnings()[str(outcome)]
    levels = {name: Level.OFF}
    silent = fed(panel(**levels), outcome, 50)
    assert (silent.verdict().status, silent.warnings()) == (Status.HEALTHY, {})


@pytest.mark.parametrize("outcome", [Outcome.SHED, Outcome.BAD_INPUT])
def test_load_and_hopeless_texts_warn_and_never_trip(outcome: Outcome) -> None:
    busy = fed(panel(), outcome, 300)
    assert busy.verdict().status is Status.NO_VERDICT
    assert busy.warnings()[str(outcome)] == "200 of the last 200 calls"
    with pytest.raises(ConfigError, match="says nothing about the model"):
        SignalPolicy(**{str(outcome): Level.TRIP})  # type: ignore[arg-type]


def test_a_slow_model_trips_far_below_the_deadline_and_says_so() -> None:
    slow = fed(panel(), Outcome.GOOD, 60)
    for _ in range(60):
        slow.record_latency(slow=True)
    assert slow.verdict().status is Status.DEGRADED
    assert slow.verdict().reason.startswith("latency: 60 bad of 60")
    warned = fed(panel(latency=Level.WARN), Outcome.GOOD, 60)
    for _ in range(60):
        warned.record_latency(slow=True)
    assert warned.verdict().status is Status.HEALTHY
    assert "latency" in warned.warnings()


def test_a_few_slow_answers_are_what_a_healthy_model_has() -> None:
    some = fed(panel(), Outcome.GOOD, 200)
    for number in range(1000):
        some.record_latency(slow=number % 10 == 0)
        assert some.verdict().status is Status.HEALTHY


@pytest.mark.parametrize(
    ("p95_ms", "model_ms", "texts", "slow"),
    [
        (30.0, 59.0, 1, False),
        (30.0, 61.0, 1, True),
        (30.0, 61.0, 2, False),  # two texts may take as long as one after the other
        (1.0, 20.0, 1, False),  # no caller feels it, and a busy core takes as much
        (1.0, 22.0, 1, True),
        (None, 1e9, 1, None),
        (math.nan, 1e9, 1, None),
        (0.0, 1e9, 1, None),
        (30.0, math.nan, 1, None),
        (30.0, math.inf, 1, True),
    ],
)
def test_slow_is_twice_the_releases_own_95th_percentile_and_unknown_is_not_slow(
    p95_ms: float | None, model_ms: float, texts: int, slow: bool | None
) -> None:
    assert is_slow(SignalPolicy(), p95_ms, model_ms=model_ms, texts=texts) is slow


@given(st.floats(0.1, 1000.0), st.integers(1, 64), st.floats(1.0, 10.0))
def test_what_a_healthy_model_takes_is_never_slow(p95_ms: float, texts: int, factor: float) -> None:
    assert slow_limit_ms(SignalPolicy(latency_factor=factor), p95_ms, texts) >= p95_ms * texts


@pytest.mark.parametrize("level", [Level.WARN, Level.TRIP])
def test_a_drift_of_labels_and_of_words_does_what_its_level_says(level: Level) -> None:
    drifted = fed(panel(label_mix=level, oov=level), Outcome.GOOD, 500)
    for _ in range(600):
        drifted.record_label("play")
        drifted.record_oov(0.9)
    trips = level is Level.TRIP
    assert (drifted.verdict().status is Status.DEGRADED) is trips
    assert set(drifted.warnings()) == (set() if trips else {"label_mix", "oov"})
    if trips:
        assert drifted.verdict().reason.startswith("label_mix: label mix differs")


def labelled(to: SignalPanel, *, right: int, wrong: int) -> SignalPanel:
    for turn in range(right + wrong):
        to.record_feedback(right=turn >= wrong)
    return to


def test_late_labels_trip_above_the_releases_own_share_of_wrong_answers() -> None:
    good = labelled(fed(panel(Healthy(accuracy=0.60)), Outcome.GOOD, 100), right=110, wrong=90)
    assert (good.verdict().status, good.warnings()) == (Status.HEALTHY, {}), "no worse than on validation data"
    ill = labelled(fed(panel(Healthy(accuracy=0.95)), Outcome.GOOD, 100), right=110, wrong=90)
    assert ill.verdict().reason == "feedback: 90 wrong of 200 with a late label, limit 20%"
    warned = labelled(fed(panel(feedback=Level.WARN), Outcome.GOOD, 100), right=110, wrong=90)
    assert (warned.verdict().status, list(warned.warnings())) == (Status.HEALTHY, ["feedback"])


def test_a_few_wrong_labels_leave_it_open_whether_a_model_is_healthy_and_right_ones_settle_it() -> None:
    doubted = labelled(fed(panel(), Outcome.GOOD, 100), right=2, wrong=3)
    assert doubted.verdict().status is Status.NO_VERDICT
    assert doubted.verdict().reason == "feedback: 3 wrong of 5 with a late label, limit 20%: too few to be sure"
    assert labelled(doubted, right=30, wrong=0).verdict().status is Status.HEALTHY


@pytest.mark.parametrize("accuracy", [None, float("nan"), 1.2, 0.1])
def test_labels_that_can_not_be_compared_with_the_release_are_not_judged(accuracy: float | None) -> None:
    unknown = labelled(fed(panel(Healthy(accuracy=accuracy)), Outcome.GOOD, 100), right=0, wrong=200)
    assert unknown.verdict().status is Status.HEALTHY
    assert "feedback" in unknown.status()["not_judged"]


def test_a_margin_for_wrong_answers_that_is_none_is_refused() -> None:
    for margin in (0.0, 1.0, float("nan")):
        with pytest.raises(ConfigError, match="wrong_margin"):
            SignalPolicy(wrong_margin=margin)


def test_a_new_start_forgets_every_signal() -> None:
    used = fed(panel(label_mix=Level.TRIP), Outcome.WEAK, 100)
    for _ in range(600):
        used.record_label("play", 1)
        used.record_latency(slow=True, caller=1)
        used.record_feedback(right=False)
    used.clear()
    assert (used.verdict().status, used.verdict().total, used.warnings()) == (Status.NO_VERDICT, 0, {})


@given(st.lists(st.sampled_from(list(Outcome)), max_size=200))
def test_without_callers_the_verdict_is_that_of_a_plain_monitor(outcomes: list[Outcome]) -> None:
    both, plain = SignalPanel(HealthPolicy()), HealthMonitor()
    for outcome in outcomes:
        both.record(outcome)
        plain.record(outcome)
        assert both.verdict().verdict == plain.verdict()


def test_one_callers_slow_and_weak_answers_are_its_own() -> None:
    mixed = panel()
    for turn in range(400):
        noisy = turn % 2 == 0 and turn > 100
        who = 0 if turn % 2 == 0 else 1 + turn % 9
        mixed.record(Outcome.WEAK if noisy else Outcome.GOOD, who)
        mixed.record_latency(slow=noisy, caller=who)
        assert mixed.verdict().status is not Status.DEGRADED
    assert len(mixed.status()["callers_apart"]) == 1
    assert "went bad" in (mixed.holds_back(0) or "")
    assert mixed.holds_back(1) is None
    assert len(mixed.newly_apart()) == 2
    assert mixed.newly_apart() == []


def test_a_release_that_measured_no_latency_is_said_not_to_be_judged_by_it() -> None:
    unmeasured = panel(Healthy(latency_p95_ms=None, label_mix={}))
    status = unmeasured.status()
    assert "no measured latency" in status["not_judged"]["latency"]
    assert "no label mix" in status["drift"]["label_mix"]
    assert unmeasured.armed.refusals == ()


def test_a_share_of_slow_answers_that_a_healthy_model_has_is_refused_and_only_warns() -> None:
    eager = SignalPolicy(slow=HealthPolicy(window_size=200, min_samples=50, max_bad_fraction=0.06))
    fit = armed(HealthPolicy(), eager, "r1", Healthy())
    assert fit.signals.latency is Level.WARN
    assert "would trip on a healthy model" in fit.refusals[0]


def test_a_rule_for_slow_answers_that_could_never_trip_once_armed_stays_as_given_and_is_said() -> None:
    tiny = HealthPolicy(window_size=2, min_samples=2, max_bad_fraction=1.0, ruled_out_bad_fraction=0.0)
    fit = armed(HealthPolicy(), SignalPolicy(slow=tiny, latency=Level.WARN), "r1", Healthy())
    assert fit.signals.slow == tiny
    assert "slow answers is not armed: window_size is 2" in fit.refusals[0]


@pytest.mark.parametrize(("weak", "limit"), [(0.3, 0.55), (math.nan, 0.2)])
def test_a_rule_that_does_not_fit_the_release_says_so_and_spares_the_healthy_model(weak: float, limit: float) -> None:
    fit = armed(HealthPolicy(), SignalPolicy(), "r1", Healthy(weak_fraction=weak))
    assert fit.health.max_bad_fraction == limit
    assert "not armed as asked from release r1" in fit.refusals[0]
    unheard = armed(HealthPolicy(), SignalPolicy(quality=Level.WARN), "r1", Healthy(weak_fraction=weak))
    assert unheard.refusals == (), "what may not trip needs no arming"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"latency_factor": 0.5}, "latency_factor is 0.5"),
        ({"latency_factor": math.nan}, "latency_factor is nan"),
        ({"latency_slack_ms": -1.0}, "latency_slack_ms is -1"),
    ],
)
def test_limits_that_every_answer_or_none_can_pass_are_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SignalPolicy(**wrong)  # type: ignore[arg-type]


def test_many_repaired_texts_warn_and_never_trip_though_every_answer_is_good() -> None:
    mended = panel()
    for turn in range(400):
        mended.record(Outcome.GOOD)
        mended.record_repaired(repaired=turn >= 200)
    assert mended.verdict().status is Status.HEALTHY
    assert "texts had to be repaired" in mended.warnings()["repaired"]
    mended.clear()
    assert mended.warnings() == {}
    with pytest.raises(ConfigError, match="repaired is trip"):
        SignalPolicy(repaired=Level.TRIP)


def test_the_rule_is_said_in_words() -> None:
    words = SignalPolicy().in_words()
    assert (
        words == "quality, error, late, latency, feedback may trip; label_mix, oov, shed, bad_input, repaired may warn"
    )
    names = ("quality", "error", "late", "latency", "label_mix", "oov", "feedback", "shed", "bad_input", "repaired")
    off: dict[str, Any] = dict.fromkeys(names, Level.OFF)
    assert SignalPolicy(**off).in_words() == "no signal is heard"


def test_a_rule_for_late_labels_that_could_never_trip_on_a_weak_release_is_left_out_and_said() -> None:
    small = HealthPolicy(window_size=20, min_samples=20, max_bad_fraction=0.3, ruled_out_bad_fraction=0.15)
    fit = armed(HealthPolicy(), SignalPolicy(wrong=small), "r1", Healthy(accuracy=0.3))
    assert fit.signals.feedback is Level.OFF
    assert "r1" in fit.unjudged["feedback"]
