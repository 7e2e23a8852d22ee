"""The interval that wastes least, and what makes a checkpoint due."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.training.checkpoints.cadence import Cadence, Setting, daly_s, expected_efficiency, young_s
from failsoft.training.checkpoints.cadence_trial import side_by_side, simulate

HOUR_S = 3600.0
settings = st.builds(
    Setting,
    node_mtbf_s=st.floats(600.0, 1e7),
    checkpoint_cost_s=st.floats(0.01, 60.0),
    nodes=st.integers(1, 4),
    restart_s=st.floats(0.0, 120.0),
)


def test_youngs_interval_is_his_formula() -> None:
    assert young_s(Setting(node_mtbf_s=24 * HOUR_S, checkpoint_cost_s=300.0)) == pytest.approx(7200.0)


@given(settings)
def test_no_interval_around_dalys_is_better_by_more_than_his_error(setting: Setting) -> None:
    best = expected_efficiency(setting, daly_s(setting))
    rivals = [expected_efficiency(setting, daly_s(setting) * 1.05**power) for power in range(-40, 41)]
    assert best >= max(rivals) - 0.005


@given(settings)
def test_young_and_daly_meet_where_a_checkpoint_costs_nothing_to_speak_of(setting: Setting) -> None:
    cheap = Setting(node_mtbf_s=setting.node_mtbf_s, checkpoint_cost_s=setting.node_mtbf_s * 1e-9)
    assert daly_s(cheap) == pytest.approx(young_s(cheap), rel=1e-3)


@pytest.mark.parametrize("nodes", [1, 8, 64])
def test_the_simulation_agrees_with_the_formula(nodes: int) -> None:
    setting = Setting(node_mtbf_s=200 * HOUR_S, checkpoint_cost_s=20.0, nodes=nodes, restart_s=90.0)
    for trial in side_by_side(setting, failures=20_000):
        assert trial.simulated == pytest.approx(trial.expected, abs=0.01), trial.name


def test_in_the_simulation_too_dalys_interval_beats_the_ones_around_it() -> None:
    trials = side_by_side(Setting(node_mtbf_s=6 * HOUR_S, checkpoint_cost_s=60.0, nodes=4), failures=20_000)
    best = next(trial for trial in trials if trial.name == "Daly")
    assert all(best.simulated > trial.simulated for trial in trials if "×" in trial.name)


def test_the_same_seed_draws_the_same_failures() -> None:
    setting = Setting(node_mtbf_s=HOUR_S, checkpoint_cost_s=5.0)
    assert simulate(setting, 300.0, rng=random.Random(1)) == simulate(setting, 300.0, rng=random.Random(1))


def test_more_nodes_fail_more_often_and_want_shorter_intervals() -> None:
    one, many = (Setting(node_mtbf_s=1e6, checkpoint_cost_s=10.0, nodes=nodes) for nodes in (1, 100))
    assert daly_s(many) < daly_s(one) / 5


def test_a_cluster_that_fails_faster_than_it_saves_has_no_useful_time() -> None:
    hopeless = Setting(node_mtbf_s=1.0, checkpoint_cost_s=1000.0)
    assert daly_s(hopeless) == hopeless.mtbf_s
    assert expected_efficiency(hopeless, daly_s(hopeless)) == 0.0


@pytest.mark.parametrize(
    "wrong", [{"node_mtbf_s": 0.0}, {"checkpoint_cost_s": math.nan}, {"nodes": 0}, {"restart_s": -1.0}]
)
def test_times_that_are_none_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Setting(**({"node_mtbf_s": 1.0, "checkpoint_cost_s": 1.0} | wrong))  # type: ignore[arg-type]


def test_each_reason_makes_a_checkpoint_due_on_its_own() -> None:
    cadence = Cadence(every_steps=10, every_s=60.0, at_epoch_end=True)
    assert cadence.due(steps=9, elapsed_s=59.0) is None
    assert cadence.due(steps=10) == "10 steps since the last one"
    assert cadence.due(steps=1, elapsed_s=61.0) == "61 s since the last one"
    assert cadence.due(steps=1, epoch_ended=True) == "the epoch ended"
    assert Cadence(every_steps=None).due(steps=10**9, elapsed_s=1e9, epoch_ended=True) is None


@pytest.mark.parametrize("wrong", [{"every_steps": 0}, {"every_s": math.nan}, {"every_s": 0.0}])
def test_a_cadence_that_is_always_due_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Cadence(**wrong)  # type: ignore[arg-type]
