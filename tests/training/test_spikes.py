from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from failsoft.errors import ConfigError
from failsoft.training.spikes import SpikePolicy, SpikeWatch, spike_limit

POLICY = SpikePolicy(window=20, warm_up=10)


def watched(values: NDArray[np.float64] | list[float], policy: SpikePolicy = POLICY) -> SpikeWatch:
    watch = SpikeWatch(policy)
    for value in values:
        watch.record(float(value))
    return watch


def test_nothing_is_a_spike_until_the_watch_is_warm() -> None:
    assert watched([1.0] * 9).limit == math.inf
    assert watched([1.0] * 10).limit == pytest.approx(2.0)


def test_the_limit_is_so_many_robust_deviations_above_the_median() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    policy = SpikePolicy(window=5, warm_up=2, deviations=2.0, min_relative_spread=0.0)
    assert spike_limit(values, policy) == pytest.approx(3.0 + 2.0 * 1.4826 * 1.0)


def test_values_that_lean_to_the_right_are_measured_to_the_right() -> None:
    values = [1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0]
    policy = SpikePolicy(window=8, warm_up=2, deviations=1.0, min_relative_spread=0.0)
    assert spike_limit(values, policy) == pytest.approx(1.0 + 1.4826 * 2.0)


HEAVY: dict[str, Callable[[np.random.Generator, NDArray[np.float64]], NDArray[np.float64]]] = {
    "normal": lambda chance, level: level * (1 + 0.2 * chance.standard_normal(level.size)),
    "lognormal": lambda chance, level: level * np.exp(0.5 * chance.standard_normal(level.size)),
    "gamma": lambda chance, level: level * chance.gamma(2, 0.5, level.size),
    "epochs": lambda chance, level: (
        level * (1 + np.arange(level.size) % 500 / 2500) * (1 + 0.1 * chance.standard_normal(level.size))
    ),
}


@pytest.mark.parametrize("name", sorted(HEAVY))
def test_fewer_than_one_in_ten_thousand_values_of_a_heavy_tail_is_taken_for_a_spike(name: str) -> None:
    level = 1 + 4 * np.exp(-np.arange(30_000) / 2000)  # as a loss falls
    watch, refused = SpikeWatch(SpikePolicy()), 0
    for value in HEAVY[name](np.random.default_rng(0), level):
        if value > watch.limit:
            refused += 1
        else:
            watch.record(float(value))
    assert refused < 3
    assert watch.limit < 25 * np.median(watch.state_dict()["values"])


def test_ripples_on_a_plateau_are_no_spikes() -> None:
    watch = watched([1.0] * 200)
    assert watch.limit >= 1.4


def test_a_loss_that_is_0_in_most_batches_has_no_limit() -> None:
    """As a hinge loss is; with a limit of 0, all that there was to learn from would be refused."""
    assert watched([0.0] * 20).limit == math.inf
    assert watched([0.0, 0.0, 0.0, 0.0, 0.5] * 4).limit == math.inf


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_teaches_nothing(value: float) -> None:
    watch = watched([1.0] * 9)
    watch.record(value)
    assert watch.limit == math.inf
    assert len(watch.state_dict()["values"]) == 9


@settings(max_examples=200, deadline=None)
@given(
    usual=st.lists(st.floats(1.0, 1.5), min_size=40, max_size=40),
    outliers=st.lists(st.floats(1e3, 1e30), min_size=10, max_size=10),
    order=st.randoms(use_true_random=False),
)
def test_outliers_in_a_fifth_of_the_window_cannot_lift_the_limit_above_themselves(
    usual: list[float], outliers: list[float], order: object
) -> None:
    values = [*usual, *outliers]
    order.shuffle(values)  # type: ignore[attr-defined]
    policy = SpikePolicy(window=50, warm_up=10)
    clean = spike_limit(usual, policy)
    limit = spike_limit(values, policy)
    assert max(usual) < limit < min(outliers)
    assert limit <= clean + 20 * 1.4826 * 1.0  # the whole width of what is usual, at most


@settings(max_examples=200, deadline=None)
@given(values=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60), scale=st.floats(1e-3, 1e3))
def test_the_limit_is_above_the_median_and_scales_with_the_values(values: list[float], scale: float) -> None:
    limit = spike_limit(values, POLICY)
    assert limit >= float(np.median(values))
    scaled = spike_limit([value * scale for value in values], POLICY)
    assert scaled == pytest.approx(limit * scale, rel=1e-6, abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.floats(0.1, 10.0), max_size=80), cut=st.integers(0, 80))
def test_a_watch_that_is_saved_and_restored_goes_on_as_if_it_had_not_been(values: list[float], cut: int) -> None:
    undisturbed, first = watched(values), watched(values[:cut])
    resumed = SpikeWatch(POLICY)
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    for value in values[cut:]:
        resumed.record(value)
    assert resumed.limit == undisturbed.limit
    assert resumed.state_dict() == undisturbed.state_dict()


def test_a_full_window_that_is_its_own_warm_up_is_not_sorted_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_times: list[int] = []

    def counted(*_: object) -> float:
        sorted_times.append(1)
        return 1.0

    monkeypatch.setattr("failsoft.training.spikes.spike_limit", counted)
    watched([1.0] * 110, SpikePolicy(window=10, warm_up=10))
    assert len(sorted_times) == 11


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"warm_up": 1}, "warm_up is 1"),
        ({"window": 5, "warm_up": 6}, "window 5"),
        ({"deviations": math.nan}, "deviations is nan"),
        ({"deviations": 0.0}, "deviations is 0"),
        ({"min_relative_spread": -1.0}, "min_relative_spread is -1"),
        ({"min_relative_spread": math.nan}, "min_relative_spread is nan"),
    ],
)
def test_limits_that_everything_or_nothing_would_pass_are_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SpikePolicy(**wrong)  # type: ignore[arg-type]
