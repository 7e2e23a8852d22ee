from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.release.evidence import answers_of
from failsoft.release.spread import Bootstrap, deviations, log_probabilities, normalised_entropies

LOGITS = np.random.default_rng(5).normal(0.0, 3.0, size=(300, 7))


def test_a_certain_answer_has_entropy_0_and_a_uniform_one_1() -> None:
    entropies = normalised_entropies(np.array([[200.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    assert entropies.tolist() == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize("row", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]])
def test_a_row_that_is_not_finite_has_no_entropy(row: list[float]) -> None:
    assert math.isnan(normalised_entropies(np.array([row]))[0])


@given(st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=9), st.floats(0.05, 20.0))
def test_probabilities_add_up_to_1_at_any_temperature(row: list[float], temperature: float) -> None:
    assert np.exp(log_probabilities(np.array([row]), temperature)).sum() == pytest.approx(1.0)


def test_the_same_answers_deviate_by_nothing() -> None:
    answers = answers_of(LOGITS, 1.3)
    for deviation in deviations(answers, answers, Bootstrap()):
        assert (deviation.value, deviation.low, deviation.high) == pytest.approx((0.0, 0.0, 0.0))


def test_the_statistics_without_resampling_are_the_plain_ones() -> None:
    ours, theirs = answers_of(LOGITS + 0.7, 1.0), answers_of(LOGITS[:, :5] * 0.9, 1.0)
    found = {deviation.name: deviation.value for deviation in deviations(ours, theirs, Bootstrap(rounds=100))}
    a, b = ours.spread(), theirs.spread()
    assert found == pytest.approx(
        {
            "logit_std": a.logit_std / b.logit_std - 1.0,
            "entropy_mean": a.entropy_mean / b.entropy_mean - 1.0,
            "entropy_std": a.entropy_std / b.entropy_std - 1.0,
        }
    )


def test_a_temperature_that_is_off_moves_the_entropies_and_not_the_logits() -> None:
    found = {d.name: d for d in deviations(answers_of(LOGITS, 1.5), answers_of(LOGITS, 1.0), Bootstrap())}
    assert found["logit_std"].value == pytest.approx(0.0)
    assert found["entropy_mean"].low > 0.15


def test_scaled_logits_move_the_logit_std_although_a_scaled_temperature_hides_them_from_entropy() -> None:
    found = {d.name: d for d in deviations(answers_of(LOGITS * 1.5, 1.5), answers_of(LOGITS, 1.0), Bootstrap())}
    assert found["logit_std"].value == pytest.approx(0.5)
    assert found["entropy_mean"].value == pytest.approx(0.0)


def test_one_nan_answer_leaves_no_interval() -> None:
    broken = LOGITS.copy()
    broken[3, 2] = np.nan
    for deviation in deviations(answers_of(broken, 1.0), answers_of(LOGITS, 1.0), Bootstrap()):
        assert math.isnan(deviation.value)
        assert math.isnan(deviation.low)


def test_answers_to_other_texts_are_not_paired() -> None:
    with pytest.raises(ConfigError, match="can't be paired"):
        deviations(answers_of(LOGITS[:10], 1.0), answers_of(LOGITS, 1.0), Bootstrap())


def test_no_answers_give_no_numbers() -> None:
    nothing = answers_of(LOGITS[:0], 1.0)
    assert all(math.isnan(deviation.value) for deviation in deviations(nothing, nothing, Bootstrap()))


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Two noisy models of equal spread on 200 texts: the true deviation is 0."""
    chance, inside, trials = np.random.default_rng(11), 0, 60
    for _ in range(trials):
        base = chance.normal(0.0, 2.0, size=(200, 4))
        ours, theirs = (answers_of(base + chance.normal(0.0, 0.5, base.shape), 1.0) for _ in range(2))
        entropy_mean = deviations(ours, theirs, Bootstrap(rounds=200))[1]
        inside += entropy_mean.low <= 0.0 <= entropy_mean.high
    assert inside / trials > 0.85


@pytest.mark.parametrize("setting", [{"rounds": 99}, {"confidence": 1.0}, {"confidence": 0.2}])
def test_an_interval_that_means_nothing_is_refused(setting: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Bootstrap(**setting)  # type: ignore[arg-type]
