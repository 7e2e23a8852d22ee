"""The example of an own model does what it says: published, asked, judged, and replaced when it is ill. No Ray."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from failsoft.errors import ConfigError
from failsoft.health.window import Outcome
from failsoft.serving import AnswerForm, AppSpec, ConstantRung, FunctionRung, Instances, Regression, Rung
from failsoft.serving.plan.plan import Arm, Stage
from failsoft.serving.seam import Judged, Measures
from failsoft.serving.web.messages import Answer, Entity
from tests.conftest import ROOT
from tests.serving.fakes import plan
from tests.serving.own_world import OwnWorld, example

pytestmark = pytest.mark.anyio
FLAT = [70.0, 3.0]


@pytest.fixture
def world(tmp_path: Path) -> OwnWorld:
    there = example()
    there["publish"](tmp_path)
    return OwnWorld(there["config"], tmp_path)


def test_the_example_has_less_than_forty_lines() -> None:
    text = (ROOT / "docs/own_model.py").read_text("utf-8")
    lines = text.splitlines()[ast.parse(text).body[0].end_lineno :]
    assert len([line for line in lines if line.strip()]) < 40


async def test_an_own_model_answers_an_instance_and_says_how_sure_it_is(world: OwnWorld) -> None:
    answer = (await world.post({"instance": FLAT, "request_id": "a"})).json()
    assert (answer["output"], answer["source"], answer["release"]) == (305.0, "primary", world.bundle.name)
    assert answer["confidence"] == pytest.approx(0.974, abs=0.001)
    assert "entities" not in answer
    assert [(seen.arm, seen.outcome) for seen in world.notes.seen] == [(Arm.SUBJECT, Outcome.GOOD)]


async def test_several_instances_are_answered_one_by_one(world: OwnWorld) -> None:
    answers = (await world.post({"instances": [FLAT, [1e9, 1.0]]})).json()["answers"]
    assert [answer["source"] for answer in answers] == ["primary", "by_size"]
    assert "outside the range" in answers[1]["degrade_reason"]


async def test_a_model_gone_bad_is_replaced_by_the_own_rungs_in_their_order(world: OwnWorld) -> None:
    world.break_model()
    answer = (await world.post({"instance": FLAT})).json()
    assert (answer["output"], answer["source"], answer["confidence"]) == (280.0, "by_size", None)
    assert answer["degrade_reason"] == "mean or std is not finite"
    assert [seen.outcome for seen in world.notes.seen] == [Outcome.WEAK]
    resting = {"by_size": [world.kit.ladder.answer([], "odd").source for _ in range(6)]}
    assert resting == {"by_size": ["mean_price"] * 6}, "it raises on a flat without size"
    assert "IndexError" in world.kit.ladder.resting["by_size"]
    assert (await world.post({"instance": FLAT})).json()["source"] == "mean_price", "a rung that rests is not asked"


async def test_an_instance_that_does_not_fit_is_refused_in_words(world: OwnWorld) -> None:
    refused = await world.post({"instance": ["large", 3.0]})
    assert refused.status_code == 422
    assert "instance" in refused.json()["detail"]
    assert (await world.post({"instance": [70.0]})).status_code == 422
    for body in ({"key": "k"}, {"instance": FLAT, "instances": [FLAT]}):
        assert "give either instance or instances" in (await world.post(body)).json()["detail"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
async def test_a_number_that_is_none_is_answered_by_the_fallback_and_not_held_against_the_model(
    world: OwnWorld, number: str
) -> None:
    answer = await world.post(None, raw=f'{{"instance": [{number}, 3.0]}}')
    if answer.status_code == 422:  # refused at the door is as good
        return
    assert answer.json()["source"] == "mean_price"
    assert answer.json()["degrade_reason"].startswith("the instance holds ")
    assert [seen.outcome for seen in world.notes.seen] == [Outcome.BAD_INPUT]


async def test_a_copy_of_an_instance_goes_to_the_subject_and_agreement_is_the_kinds_own(world: OwnWorld) -> None:
    world.plan = plan(Stage.SHADOW, share=0.0, release=world.bundle.name)
    answer = (await world.post({"instance": FLAT})).json()
    assert answer["source"] == "by_size"
    (copy,) = world.notes.copies
    assert (list(copy.text), copy.live_output) == (FLAT, 280.0)
    await world._answerer.answer_mirrored(copy)
    assert [(seen.mirrored, seen.agreed) for seen in world.notes.seen] == [(True, False)], "25 apart, tolerance is 20"


async def test_the_description_of_an_own_app_is_whole(world: OwnWorld) -> None:
    document = world.app.openapi()
    content = document["paths"]["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]
    schema = content["schema"] | {"components": document["components"]}
    for shown in content["examples"].values():
        Draft202012Validator(schema).validate(shown["value"])
    answers = document["paths"]["/v1/predict"]["post"]["responses"]["200"]["content"]["application/json"]["examples"]
    assert answers["model"]["value"]["output"] is None
    assert "intent" not in answers["model"]["value"]


async def test_the_output_can_have_a_name_and_a_type_of_its_own(tmp_path: Path) -> None:
    there = example()
    there["publish"](tmp_path)
    form = AnswerForm(field="price", output=float, example=305.0)
    world = OwnWorld(replace(there["config"], answers=form), tmp_path)
    assert (await world.post({"instance": FLAT})).json()["price"] == 305.0
    document = world.app.openapi()
    assert document["components"]["schemas"]["Answered"]["properties"]["price"]["type"] == "number"


def guesses(_bundle: Any) -> list[FunctionRung]:
    return [FunctionRung("by_size", lambda flat: 4.0 * flat[0])]


async def test_an_app_whose_last_rung_can_fail_is_refused_with_the_mend(tmp_path: Path) -> None:
    there = example()
    there["publish"](tmp_path)
    config: AppSpec = replace(there["config"], rungs=guesses)
    with pytest.raises(ConfigError, match=r"the last rung \(by_size\) raised on None: .*end the ladder with a Const"):
        OwnWorld(config, tmp_path)


class Priced(Answer):
    """A whole answer, written by hand: its price is a text."""

    price: str


def in_words(_bundle: Any) -> list[Rung]:
    return [FunctionRung("by_size", lambda flat: 4.0 * flat[0]), ConstantRung("unknown", name="nobody")]


async def test_an_output_that_an_answer_written_by_hand_does_not_take_is_weak_and_the_next_one_answers(
    tmp_path: Path,
) -> None:
    """It was a 500 for every request."""
    there = example()
    there["publish"](tmp_path)
    form = AnswerForm(field="price", output=str, example="305", model=Priced)
    world = OwnWorld(replace(there["config"], answers=form, rungs=in_words), tmp_path)
    answer = (await world.post({"instance": FLAT})).json()
    assert (answer["price"], answer["source"]) == ("unknown", "nobody")
    assert "price does not fit the app's own form of answers" in answer["degrade_reason"]
    assert [seen.outcome for seen in world.notes.seen] == [Outcome.WEAK]
    assert world.kit.ladder.failures == {"by_size": 1}


async def test_a_last_rung_that_the_form_of_answers_does_not_take_is_refused_before_it_serves(tmp_path: Path) -> None:
    there = example()
    there["publish"](tmp_path)
    form = AnswerForm(field="price", output=str, example="305", model=Priced)
    with pytest.raises(
        ConfigError, match=r"the last rung \(mean_price\) .* does not fit the app's own form of answers"
    ):
        OwnWorld(replace(there["config"], answers=form), tmp_path)


class Naming(Regression):
    """Names a piece of each item, too."""

    def judge(self, scores: Any, *, rows: int, measures: Measures) -> list[Judged]:
        piece = Entity(start=0, end=1, slot="room", text="kitchen")
        return [row._replace(entities=(piece,)) for row in super().judge(scores, rows=rows, measures=measures)]


async def test_named_pieces_of_an_instance_stay_as_the_model_gave_them(world: OwnWorld) -> None:
    """An instance is no text whose piece could be shown: this was a bug's 500."""
    world.arm.quality = Naming(tolerance=20.0)
    response = await world.post({"instance": FLAT})
    assert (response.status_code, response.json()["source"]) == (200, "primary")


async def test_a_check_of_instances_that_fails_makes_them_hopeless_and_raises_nothing(tmp_path: Path) -> None:
    def check(_item: Any) -> str | None:
        raise KeyError("size")

    there = example()
    there["publish"](tmp_path)
    world = OwnWorld(replace(there["config"], inputs=Instances(unreadable=check)), tmp_path)
    assert (await world.post({"instance": {"no": "size"}})).json()["source"] == "mean_price"
    assert [seen.outcome for seen in world.notes.seen] == [Outcome.BAD_INPUT]
