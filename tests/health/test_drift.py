"""A mix that differs is found, chance never is, and one caller alone moves nothing."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.drift import DriftPolicy, FairWindow, LabelMix, OovWindow

SEVEN = {f"intent {number}": 1 / 7 for number in range(7)}
MANY = {f"intent {number}": 1 / 150 for number in range(150)}


def mix(shares: dict[str, float] | None = None, *, samples: int = 700) -> LabelMix:
    return LabelMix(DriftPolicy(), SEVEN if shares is None else shares, samples)


@pytest.mark.parametrize(("shares", "samples"), [(SEVEN, 700), (MANY, 3000)])
def test_the_releases_own_mix_is_never_found_to_drift(shares: dict[str, float], samples: int) -> None:
    window, rng, labels = mix(shares, samples=samples), random.Random(1), list(shares)
    for _ in range(20_000):
        window.record(rng.choice(labels))
        assert window.last is None or not window.last.found


@pytest.mark.parametrize(("shares", "samples", "within"), [(SEVEN, 700, 400), (MANY, 3000, 500)])
def test_a_model_that_gives_one_label_to_all_is_found(shares: dict[str, float], samples: int, within: int) -> None:
    window, rng, labels = mix(shares, samples=samples), random.Random(1), list(shares)
    for _ in range(1000):
        window.record(rng.choice(labels))
    for _ in range(within):
        window.record("intent 3")
    assert window.last is not None
    assert window.last.found
    assert "'intent 3' +" in window.last.why


def test_labels_that_the_release_never_gave_are_a_drift_and_take_no_memory() -> None:
    window = mix()
    for number in range(1000):
        window.record(f"made up {number}")
    assert window.last is not None
    assert window.last.measured == pytest.approx(1.0)
    assert "never gave" in window.last.why
    assert len(window._counts) == 1


def test_before_the_window_is_full_nothing_is_said() -> None:
    window = mix()
    for _ in range(499):
        window.record("intent 3")
    assert window.last is None


@pytest.mark.parametrize(
    ("shares", "samples", "words"),
    [
        ({}, 700, "no label mix"),
        (SEVEN, 0, "no label mix"),
        ({"a": math.nan, "b": 0.5}, 700, "is none"),
        ({"a": 0.5}, 700, "sum to 0.500"),
        (MANY, 100, "use a larger window"),
    ],
)
def test_a_mix_that_can_not_be_judged_is_refused_in_words(shares: dict[str, float], samples: int, words: str) -> None:
    window = mix(shares, samples=samples)
    for _ in range(1000):
        window.record("a")
    assert window.last is None
    assert words in (window.refusal or "")


def test_one_caller_of_many_changes_neither_the_mix_nor_the_words() -> None:
    labels, words = mix(), OovWindow(DriftPolicy(), 0.05)
    rng = random.Random(2)
    for turn in range(20_000):
        noisy = rng.random() < 0.5
        who = 0 if noisy else rng.randrange(1, 10)
        labels.record("intent 3" if noisy else f"intent {turn % 7}", who)
        words.record(1.0 if noisy else 0.05, who)
        assert labels.last is None or not labels.last.found
        assert words.last is None or not words.last.found


@given(st.lists(st.tuples(st.integers(0, 3) | st.none(), st.integers(0, 9)), max_size=200))
def test_a_fair_window_holds_what_it_says_it_holds(pushed: list[tuple[int | None, int]]) -> None:
    window: FairWindow[int] = FairWindow(20)
    total = 0
    for caller, value in pushed:
        taken, left = window.push(caller, value)
        total += (value if taken else 0) - (left or 0)
        held = list(window._newest)
        assert sum(value for _, value in held) == total
        assert len(held) <= 20
        assert sum(window._held.values()) == sum(caller is not None for caller, _ in held)


def test_a_single_caller_fills_the_window_alone() -> None:
    window: FairWindow[int] = FairWindow(20)
    assert all(window.push(1, 0)[0] for _ in range(100))


def test_texts_of_unknown_words_are_found_and_the_releases_own_never() -> None:
    window, rng = OovWindow(DriftPolicy(), 0.06), random.Random(1)
    for _ in range(20_000):
        window.record(rng.choice([0.0, 0.0, 0.0, 0.24]))
        assert window.last is None or not window.last.found
    for _ in range(500):
        window.record(0.8)
    assert window.last is not None
    assert window.last.found
    assert "unknown to the model" in window.last.why


@pytest.mark.parametrize("share", [math.nan, -0.1, 1.1, math.inf])
def test_what_is_no_share_of_words_is_not_counted(share: float) -> None:
    window = OovWindow(DriftPolicy(), 0.06)
    for _ in range(1000):
        window.record(share)
    assert window.last is None


@pytest.mark.parametrize(("healthy", "words"), [(math.nan, "measure it"), (0.9, "no rise could be told")])
def test_a_share_of_unknown_words_that_can_not_be_judged_is_refused_in_words(healthy: float, words: str) -> None:
    window = OovWindow(DriftPolicy(), healthy)
    for _ in range(1000):
        window.record(1.0)
    assert window.last is None
    assert words in (window.refusal or "")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"window": 5}, "window is 5"),
        ({"look_every": 501}, "look_every 501"),
        ({"max_mix_distance": 1.0}, "max_mix_distance is 1"),
        ({"max_oov_rise": math.nan}, "max_oov_rise is nan"),
        ({"alpha": 0.0}, "alpha is 0"),
    ],
)
def test_a_policy_that_finds_nothing_or_everything_is_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DriftPolicy(**wrong)  # type: ignore[arg-type]
