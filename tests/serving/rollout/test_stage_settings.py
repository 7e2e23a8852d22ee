"""What a home's ``stages.toml`` changes of a profile, and what is refused of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.health.ledger import read_ledger
from failsoft.serving.plan.plan import Colour, Stage
from failsoft.serving.plan.planstore import PlanStore, RolloutState
from failsoft.serving.rollout import stage_settings
from failsoft.serving.rollout.control import Controller, ControllerConfig
from failsoft.serving.rollout.shaping import Situation, no_higher, shape_of
from failsoft.serving.rollout.stage_settings import FILE_NAME, StageSettings, policy_at, stages_in_words
from failsoft.serving.rollout.stages import StageRule, stage_policy
from tests.serving.fakes import plan as canary

WHOLE = """
[drill]
by_hand = true
mirror_share = 0.25
reject_after = 2
margin = 0.2
rest = { first_s = 5, factor = 3.0, cap_s = 45.0 }

[drill.canary]
share = 0.02
min_time_s = 4

[drill.ramp_50]
min_samples = 60

[production.shadow]
min_time_s = 1800.0
"""


def said(home: Path, text: str) -> Path:
    (home / FILE_NAME).write_text(text, "utf-8")
    return home


def test_without_a_file_a_profile_is_as_it_is(tmp_path: Path) -> None:
    assert policy_at(tmp_path, "drill") == stage_policy("drill")


def test_what_a_file_names_changes_and_all_else_stays_and_each_profile_has_its_own(tmp_path: Path) -> None:
    drill, home = stage_policy("drill"), said(tmp_path, WHOLE)
    expected = replace(
        drill,
        by_hand=True,
        mirror_share=0.25,
        reject_after=2,
        margin=0.2,
        rest=replace(drill.rest, first_s=5, factor=3.0, cap_s=45.0),
        rules={
            **drill.rules,
            Stage.CANARY: StageRule(share=0.02, min_time_s=4, min_samples=10),
            Stage.RAMP_50: replace(drill.rules[Stage.RAMP_50], min_samples=60),
        },
    )
    assert policy_at(home, "drill") == expected
    production = policy_at(home, "production")
    assert production.rules[Stage.SHADOW].min_time_s == 1800.0
    assert replace(production, rules=stage_policy("production").rules) == stage_policy("production")
    assert policy_at(home, "by-hand") == stage_policy("by-hand")


def test_the_example_that_people_copy_is_taken(tmp_path: Path) -> None:
    example = dedent(str(stage_settings.__doc__).split(".. code-block:: toml")[1])
    policy = policy_at(said(tmp_path, example), "production")
    assert (policy.margin, policy.by_hand, policy.rest.first_s) == (0.04, True, 120.0)
    assert policy.rules[Stage.SHADOW] == StageRule(share=0.0, min_time_s=1800.0, min_samples=900)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("drill = 3", "drill is 3; give a table, which begins with [drill]"),
        ("[dril]\nmargin = 0.2", "there is no profile 'dril'; use production"),
        ("[drill]\nmargins = 0.2", "drill.margins is no setting of stages; did you mean margin?"),
        ("[drill]\nhealth = {}", "drill.health is no setting of stages"),
        ("[drill]\nmargin = '0.2'", "drill.margin is '0.2'; give a number, the profile has 0.15"),
        ("[drill]\nmargin = true", "drill.margin is True; give a number"),
        ("[drill]\nby_hand = 1", "drill.by_hand is 1; give true or false"),
        ("[drill]\nreject_after = 2.5", "drill.reject_after is 2.5; give a whole number"),
        ("[drill]\nmargin = nan", "in [drill] margin is nan; it lies strictly between 0 and 1"),
        ("[drill]\nquiet_s = inf", "in [drill] quiet_s is inf; use more than 0 s, and a time that ends"),
        ("[drill.canary]\nshare = 1.5", "in [drill.canary] share is 1.5"),
        ("[drill.canary]\nshare = 0.3", "each later stage more than the one before"),
        ("[drill.shadow]\nmin_samples = 3", "raise min_samples or the margin"),
        ("[drill.shadow]\nsamples = 300", "drill.shadow.samples is no setting of stages; did you mean min_samples?"),
        ("[drill.serving]\nshare = 0.5", "drill.serving is no setting of stages"),
        ("[drill.rest]\nfirst_s = 0", "what fell rests for some time, above 0 s"),
        ("[drill.rest]\nfactor = 0.5", "in [drill.rest] factor is 0.5; waits must not shrink"),
        ("[drill]\nmargin = 0.2\nmargin = 0.3", "can't be read as stage settings"),
        ("[drill]\nquiet_s = 0.01", "quiet_s is 0.01, shorter than the first rest (2.0 s)"),
        ("[drill\n", "can't be read as stage settings"),
        (f"drill = {'[' * 5000}", "can't be read as stage settings"),
    ],
)
@pytest.mark.parametrize("profile", ["drill", "production"])
def test_what_can_not_be_meant_is_refused_whole_whichever_profile_is_served(
    tmp_path: Path, text: str, says: str, profile: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        policy_at(said(tmp_path, text), profile)
    assert says in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / FILE_NAME))


@pytest.mark.parametrize("spoil", ["bytes", "folder"])
def test_a_file_that_can_not_be_read_is_refused_and_lets_nothing_rise_by_itself(tmp_path: Path, spoil: str) -> None:
    if spoil == "bytes":
        (tmp_path / FILE_NAME).write_bytes(b"\xff\xfe[drill]")
    else:
        (tmp_path / FILE_NAME).mkdir()
    settings = StageSettings(tmp_path, "drill")
    with pytest.raises(ConfigError, match="give a TOML file"):
        settings.read()
    assert settings.read_or_by_hand() == replace(stage_policy("drill"), by_hand=True)
    assert settings.refusal is not None
    assert not settings.has_changed()


def test_a_file_has_changed_when_its_words_have(tmp_path: Path) -> None:
    settings = StageSettings(tmp_path, "drill")
    settings.read()
    seen = [settings.has_changed()]
    said(tmp_path, WHOLE)
    seen.append(settings.has_changed())
    settings.read()
    os.utime(tmp_path / FILE_NAME)
    seen.append(settings.has_changed())
    (tmp_path / FILE_NAME).unlink()
    assert [*seen, settings.has_changed()] == [False, True, False, True]


def test_the_way_up_is_said_in_words() -> None:
    says = stages_in_words(stage_policy("by-hand"))
    assert says.startswith("shadow 1.00% copied for 900 s and 450 answers, canary 5.00% for 300 s and 100 answers")
    assert says.endswith("; each by hand")


def _ready() -> Mapping[Colour, float]:
    return dict.fromkeys(Colour, 1.0)


@asynccontextmanager
async def running(home: Path) -> AsyncIterator[Controller]:
    controller = Controller(asdict(ControllerConfig(home=str(home), release="r1", profile="drill")), _ready)
    try:
        yield controller
    finally:
        await controller.stop()


async def canary_share(controller: Controller) -> Any:
    return (await controller.status())["needs"]["stages"]["canary"]["share"]


async def until(home: Path, kind: str, count: int = 1) -> None:
    for _ in range(400):
        if [event.kind for event in read_ledger(Home(root=home).ledger).events].count(kind) >= count:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{kind} was not seen {count} times")


@pytest.mark.anyio
async def test_a_running_controller_takes_a_changed_file_and_keeps_what_was_in_force_beside_one_it_refuses(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as controller:
        before = await controller.wait_plan(-1, 0.0)
        said(tmp_path, "[drill.canary]\nshare = 0.02")
        await until(tmp_path, "stages_changed")
        assert await controller.wait_plan(-1, 0.0) == before
        said(tmp_path, "[drill.canary]\nshare = 2.0")
        await until(tmp_path, "stages_refused")
        status = await controller.status()
        assert "share is 2.0" in status["settings_error"]
        with pytest.raises(ConfigError, match=r"share is 2\.0"):
            await controller.adopt("drill")
        assert status["profile"] == "drill"
        said(tmp_path, "")
        await until(tmp_path, "stages_changed", 2)
        assert (await controller.status())["settings_error"] is None


@pytest.mark.anyio
async def test_a_controller_that_comes_back_beside_a_spoiled_file_serves_on_and_lets_nothing_rise(
    tmp_path: Path,
) -> None:
    said(tmp_path, "[drill.canary]\nshare = 0.02")
    async with running(tmp_path) as controller:
        before = await controller.wait_plan(-1, 0.0)
        assert await canary_share(controller) == 0.02
    said(tmp_path, "[drill.canary]\nshare = oops")
    async with running(tmp_path) as controller:
        assert await controller.wait_plan(-1, 0.0) == before
        assert "can't be read" in (await controller.status())["settings_error"]
        assert await canary_share(controller) == 0.05
        assert controller._rollout._course.policy.by_hand  # the rule under which it leads until the file is mended


@pytest.mark.anyio
async def test_a_controller_that_comes_back_beside_a_spoiled_file_gives_the_subject_no_more_than_it_had(
    tmp_path: Path,
) -> None:
    """The file said 2 % for the canary; what the profile says, 5 %, is a rise that nobody asked for."""
    plan = canary(Stage.CANARY, share=0.02, stand_in=Colour.GREEN)
    PlanStore(Home(root=tmp_path).serving).save(RolloutState(plan=plan, since_epoch=1))
    said(tmp_path, "[drill.canary]\nshare = oops")
    async with running(tmp_path) as controller:
        policy = controller._rollout._course.policy
        assert controller._rollout.plan.share == 0.02
        situation = Situation(samples=50, since_s=60.0, ready_fraction=1.0)
        assert shape_of(controller._rollout.plan, situation, stage_policy("drill")) is not None, "what would be done"
        assert shape_of(controller._rollout.plan, situation, policy) is None
        assert policy.share_of(Stage.RAMP_50) == pytest.approx(0.2)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.05, 0.2, 0.9])
@pytest.mark.parametrize("stage", [Stage.CANARY, Stage.RAMP_20, Stage.RAMP_50])
def test_a_policy_that_gives_no_more_is_whole_and_no_stage_of_it_has_more(stage: Stage, share: float) -> None:
    profile = stage_policy("production")
    policy = no_higher(profile, canary(stage, share=share))
    assert all(policy.share_of(one) <= profile.share_of(one) for one in Stage)
    assert policy.share_of(stage) <= max(share, 1e-6)
    assert no_higher(profile, canary()) == profile, "what serves has all"
