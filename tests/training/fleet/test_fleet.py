"""A fleet that is simulated agrees with the formula where there is one, and its policies do what they are for."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.training.fleet.course import Course
from failsoft.training.fleet.faults import (
    LLAMA3_CAUSES,
    Fault,
    FaultRates,
    llama3,
    rates_named,
    rsc,
)
from failsoft.training.fleet.setting import FleetSetting, Part, Times
from failsoft.training.fleet.study import CHANGES, Mean, levers, student_t, study
from failsoft.training.fleet.trial import FleetTrial, Ran
from failsoft.training.survival.supervise import RestartPolicy

WEEK = FleetSetting(days=7.0)
NO_WAIT = RestartPolicy(
    backoff=BackoffPolicy(first_s=0.0, cap_s=0.0, jitter_fraction=0.0),
    max_attempts_without_progress=1_000_000,
    max_bugs_without_progress=1_000_000,
)
AT_ONCE = Times(
    step_s=1.0, snapshot_cost_s=0.0, checkpoint_write_s=0.0, death_seen_s=0.0, preflight_s=0.0, checkpoint_cost_s=20.0
)


@cache
def ran(setting_name: str) -> Ran:
    settings = {
        "week": WEEK,
        "no spares": replace(WEEK, spares=0),
        "elastic": replace(WEEK, spares=0, least=1800),
        "blind": replace(WEEK, preflight_finds=None),
    }
    return FleetTrial(setting=settings[setting_name], seed=3).run()


def only(kind: Fault, per_node_s: float) -> FaultRates:
    return FaultRates(name=str(kind), per_node_s={kind: per_node_s})


def test_the_published_causes_add_up_to_the_published_419() -> None:
    assert sum(count for count, _ in LLAMA3_CAUSES.values()) == 419


def test_as_many_faults_strike_as_were_published() -> None:
    found = study(FleetSetting(), range(1, 5))
    unplanned = found.faults() - found.faults(Fault.PLANNED)
    at_work = 1.0 - found.share(Part.PREFLIGHT) - found.share(Part.BACKOFF) - found.share(Part.DETECT)
    assert unplanned == pytest.approx(419 * at_work, abs=4 * (419 / 4) ** 0.5)


def test_the_other_published_rate_gives_the_mean_time_that_was_published_with_it() -> None:
    rates = rsc()
    unplanned = rates.total_per_node_s - rates.per_node_s[Fault.PLANNED]
    assert 1.0 / (unplanned * 2048) / 3600.0 == pytest.approx(1.8, abs=0.01)
    assert llama3().mtbf_s(2048) / 3600.0 == pytest.approx(54 * 24 / 466)


@pytest.mark.parametrize("mtbf_s", [4_000.0, 40_000.0])
def test_where_there_is_a_formula_the_simulation_agrees_with_it(mtbf_s: float) -> None:
    """Deaths alone, noticed and answered at once, states that are whole at once: Daly's complete model."""
    setting = FleetSetting(
        nodes=10,
        spares=0,
        days=mtbf_s * 400 / 86_400.0,
        faults=only(Fault.PROCESS, 1.0 / mtbf_s / 10),
        times=replace(AT_ONCE, start_s=300.0),
        snapshot_every_steps=None,
        preflight_finds=None,
        immediate_retries=0,
        restart=NO_WAIT,
    )
    found = study(setting, range(12))
    assert found.ettr.low - 0.004 < found.formula < found.ettr.high + 0.004  # 0.004: a started second is in vain
    assert found.ettr.high - found.ettr.low < 0.05


def test_the_parts_add_up_to_the_wall_time() -> None:
    for name in ("week", "no spares", "elastic", "blind"):
        run = ran(name)
        assert sum(run.spent_s.values()) == pytest.approx(run.wall_s, abs=1e-3)
        assert all(spent_s >= -1e-6 for spent_s in run.spent_s.values())


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    again, other = (FleetTrial(setting=WEEK, seed=seed).run() for seed in (3, 4))
    assert again == ran("week")
    assert other != again


def test_without_spares_the_run_waits_for_mended_nodes_and_an_elastic_one_goes_on_with_fewer() -> None:
    assert ran("no spares").spent_s[Part.WAIT] > ran("week").wall_s / 2
    assert ran("elastic").spent_s[Part.WAIT] < 0.01 * ran("week").wall_s
    assert ran("elastic").spent_s[Part.FEWER] > 0.0
    assert ran("no spares").ettr < ran("elastic").ettr < ran("week").ettr


def test_a_large_run_does_not_start_anew_for_each_node_that_comes_back() -> None:
    assert ran("elastic").grown == 0
    eager = replace(WEEK, spares=0, least=1800, resize=replace(WEEK.resize, costs_s=0.0))
    grown = FleetTrial(setting=eager, seed=3).run()
    assert grown.grown > 10
    assert grown.ettr < ran("elastic").ettr


def test_where_nobody_looks_at_nodes_the_supervisor_gives_up_and_people_come() -> None:
    assert ran("blind").by_hand > 5
    assert ran("week").by_hand == 0
    assert ran("blind").attempts > 5 * ran("week").attempts


def test_a_hang_costs_the_patience_of_the_watchdog() -> None:
    setting = FleetSetting(days=5.0, faults=only(Fault.HANG, 1e-8))
    run = FleetTrial(setting=setting, seed=1).run()
    each_s = run.spent_s[Part.DETECT] / run.faults[Fault.HANG]
    assert each_s >= 250.5
    assert setting.hang_seen_s(at_work=True) == 250.5


def test_a_planned_leave_loses_no_step() -> None:
    run = FleetTrial(setting=FleetSetting(days=5.0, faults=only(Fault.PLANNED, 2e-8)), seed=1).run()
    assert run.faults[Fault.PLANNED] > 5
    lost_each_s = run.spent_s[Part.LOST] / run.faults[Fault.PLANNED]
    assert lost_each_s < 12.0  # the step that was begun


def test_a_lever_is_tried_with_the_faults_of_the_run_without_it() -> None:
    base = study(WEEK, (1, 2, 3))
    names = ("start of workers in half the time", "checkpoints that hold up ten times as long", "no preflight")
    found = levers(base, (1, 2, 3), {name: CHANGES[name] for name in names})
    assert [lever.name for lever in found] == list(names)
    assert found[0].buys.low > 0.0 > found[1].buys.high
    assert found[0].buys.high - found[0].buys.low < base.ettr.high - base.ettr.low


@pytest.mark.parametrize("name", CHANGES)
def test_each_lever_can_be_pulled(name: str) -> None:
    assert CHANGES[name](WEEK) != WEEK


def test_going_back_takes_the_steps_since_then_for_done_in_vain() -> None:
    setting = replace(WEEK, checkpoint_every_steps=10, snapshot_every_steps=4)
    course = Course(setting=setting)
    course.train(25 * 6.2, workers=2048)
    course.train(60.0 + 25 * 6.2, workers=2048)
    assert (course.position, course.checkpoint, course.snapshot) == (24 + 34, 24 + 20, 24 + 32)
    before_s = course.spent_s[Part.PRODUCTIVE]
    assert course.go_back(nodes_stayed=True) == 56
    assert course.go_back(nodes_stayed=False) == course.position == 44
    assert before_s - course.spent_s[Part.PRODUCTIVE] == (58 - 44) * 6.0


@pytest.mark.parametrize(("share", "freedom", "quantile"), [(0.975, 5, 2.571), (0.975, 9, 2.262), (0.95, 30, 1.697)])
def test_the_quantile_of_student_is_that_of_the_tables(share: float, freedom: int, quantile: float) -> None:
    assert student_t(share, freedom) == pytest.approx(quantile, rel=0.005)


def test_a_single_seed_tells_nothing_of_the_spread() -> None:
    mean = Mean.of([0.9])
    assert not mean.high < 1.0
    with pytest.raises(ConfigError, match="no seed"):
        Mean.of([])


@pytest.mark.parametrize(
    ("field", "value"),
    [("spares", -1), ("days", 0.0), ("preflight_finds", 1.5), ("checkpoint_every_steps", 0), ("least", 3000)],
)
def test_a_fleet_that_cannot_be_is_refused(field: str, value: float) -> None:
    with pytest.raises(ConfigError):
        FleetSetting(**{field: value})  # type: ignore[arg-type]


def test_unknown_rates_and_times_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="use one of llama3, rsc"):
        rates_named("llama2")
    with pytest.raises(ConfigError, match="start_s"):
        Times(start_s=float("nan"))
    with pytest.raises(ConfigError, match="hold no fault"):
        only(Fault.HANG, 0.0)
