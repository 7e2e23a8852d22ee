"""What callers send: which items reach a model, and how."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Len
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.errors import ConfigError
from failsoft.serving.intake.inputs import Instances, Texts, no_number_is_missing
from failsoft.serving.intake.sanitizer import Cleanliness, TextPolicy
from failsoft.serving.plain import as_plain

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


class Flat(BaseModel):
    metres: float
    about: str = ""


@given(json_values)
def test_whatever_json_an_instance_is_cleaning_raises_nothing_and_missing_numbers_are_hopeless(item: Any) -> None:
    for inputs in (Instances(), Instances(text_fields=("about",))):
        cleaned = inputs.clean(item, TextPolicy())
        missing = no_number_is_missing(item) is not None
        assert cleaned.verdict is Cleanliness.HOPELESS or not missing


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_missing_number_is_found_however_deep_it_lies(number: float) -> None:
    assert no_number_is_missing({"rooms": [{"metres": number}]}) == f"the instance holds {number}"
    assert no_number_is_missing({"rooms": [{"metres": 1.0}], "name": "nan"}) is None


def test_an_instance_arrives_as_its_schema_makes_it() -> None:
    asked = Instances(schema=Flat).request().model_validate({"instances": [{"metres": "70"}]})
    assert (asked.items, asked.is_several) == ([{"metres": 70.0, "about": ""}], True)
    one = Instances(schema=Annotated[list[float], Len(2, 2)]).request()
    assert one.model_validate({"instance": [1, 2], "key": "k"}).items == [[1.0, 2.0]]
    for body in (
        {"instance": [1.0]},
        {},
        {"instance": [1, 2], "instances": [[1, 2]]},
        {"instance": [1, 2], "text": "x"},
    ):
        with pytest.raises(ValidationError):
            one.model_validate(body)


def test_an_instance_may_be_null_where_it_may_be_anything_and_nowhere_else() -> None:
    """It went to the model, and what the model said of it was held against the model."""
    assert Instances().request().model_validate({"instance": None}).items == [None]
    for kind in (Flat, tuple[float, float]):
        with pytest.raises(ValidationError, match="instance"):
            Instances(schema=kind).request().model_validate({"instance": None})


def test_more_instances_than_are_answered_at_once_are_refused() -> None:
    with pytest.raises(ValidationError, match="at most 2"):
        Instances(max_items=2).request().model_validate({"instances": [1, 2, 3]})
    with pytest.raises(ConfigError, match="max_items is 0"):
        Instances(max_items=0)


def test_text_fields_of_an_instance_go_through_the_sanitizer_and_the_others_do_not() -> None:
    inputs = Instances(schema=Flat, text_fields=("about", "absent"))
    cleaned: Any = inputs.clean({"metres": 70.0, "about": "sun\u200bny", "code": "a\u200bb"}, TextPolicy())
    assert cleaned.text == {"metres": 70.0, "about": "sunny", "code": "a\u200bb"}
    assert (cleaned.verdict, dict(cleaned.repairs)) == (Cleanliness.REPAIRED, {"invisible": 1})
    assert inputs.clean({"about": "\u200b"}, TextPolicy()).verdict is Cleanliness.HOPELESS
    vector: Any = inputs.clean([1.0], TextPolicy())
    assert vector.text == [1.0]


def test_a_release_says_how_its_texts_are_cleaned_and_the_app_may_overrule_it(tmp_path: Path) -> None:
    bundle = Bundle(name="r", path=tmp_path, digest="", meta={})
    assert Texts().policy_of(bundle) == TextPolicy()
    (tmp_path / Role.TEXT_POLICY).write_text(TextPolicy(split_emoji=False).to_json(), "utf-8")
    assert Texts().policy_of(bundle) == TextPolicy(split_emoji=False) == Instances(text_fields=("a",)).policy_of(bundle)
    assert Texts(policy=TextPolicy(max_chars=9)).policy_of(bundle) == TextPolicy(max_chars=9)
    assert Instances().policy_of(bundle) is None


@given(json_values)
def test_an_output_can_be_sent_or_is_refused(output: Any) -> None:
    class Sent(BaseModel):
        output: Any

    if no_number_is_missing(output) is not None:
        with pytest.raises(ValueError, match="which is no answer"):
            as_plain(output)
    else:
        sent = Sent(output=as_plain(output)).model_dump_json()
        assert json.loads(sent)["output"] == as_plain(output)
