"""The sweep's settings change what they name, and the gates stop the flatter model that is as often right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from failsoft.artifacts.home import Home
from failsoft.health.clock import SystemClock
from failsoft.models.embedded import Sizes
from failsoft.models.recipe import Recipe, recipe_named
from tests.models.toys import RECIPE
from train_jobs.sweep import SETTINGS, Judged, Setting, Sweep, judge, table, train

SMALL = Sweep(
    settings=(Setting(name="served"), Setting(name="much-smoothing", label_smoothing=0.4)),
    sizes=Sizes(train=1000, validation=500, test=200),
    recipe=replace(RECIPE, epochs=6),
)
LENIENT = """
max_weak_fraction = 0.5
max_calibration_error = 0.5
max_accuracy_behind_fallback = 0.5
"""
"""A toy model is unsure and often wrong; how flat it is compared with another can be told all the same."""


def test_a_setting_changes_what_it_names_and_nothing_else() -> None:
    recipe: Recipe = recipe_named("demo")
    assert Setting(name="x").applied_to(recipe) == recipe
    changed = Setting(name="x", dropout=0.8, weight_decay=3.0).applied_to(recipe)
    assert (changed.shape.dropout, changed.weight_decay) == (0.8, 3.0)
    assert replace(changed, shape=recipe.shape, weight_decay=recipe.weight_decay) == recipe
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)


def test_training_is_a_pure_function_so_that_a_task_may_run_twice() -> None:
    tiny = replace(SMALL, sizes=Sizes(train=100, validation=50, test=50), recipe=replace(RECIPE, epochs=1))
    one, other = (train(tiny.settings[0], tiny) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    home = Home.find(Path(tmp_path_factory.mktemp("sweep")))
    home.root.mkdir(exist_ok=True)
    (home.root / "gates.toml").write_text(LENIENT)
    trained = {setting.name: train(setting, SMALL) for setting in SMALL.settings}
    return judge(trained, SMALL, home=home, clock=SystemClock(), probe=None)


def test_the_over_regularised_model_is_as_often_right_and_is_stopped_all_the_same(judged: list[Judged]) -> None:
    served, flat = judged
    assert served.release == "served-7"
    assert flat.release is None
    assert abs(served.accuracy - flat.accuracy) < 0.1
    assert "logit std not flatter than in release served-7" in flat.why


def test_the_table_says_what_stopped_it(judged: list[Judged]) -> None:
    made = table(judged)
    assert [str(cell) for cell in made.columns[2].cells] == ["served-7", "–"]
    assert "logit std not flatter than in release served-7" in str(list(made.columns[3].cells)[1])
