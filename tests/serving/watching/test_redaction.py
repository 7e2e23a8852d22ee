"""What is named is in nothing that is kept, and what is kept can be tried again."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.serving.watching.redaction import HIDDEN, MOST_CHARACTERS, Redaction
from failsoft.serving.watching.specimens import DEFAULT_HIDES, SpecimenPolicy, Specimens

SECRET = "Annabella"
LEAVES = st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers(-99, 99) | st.just(SECRET)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["name", "age", "all"]), inner),
    max_leaves=20,
)


def redaction(*fields: str) -> Redaction:
    return Redaction(fields, [re.compile(pattern) for pattern in DEFAULT_HIDES])


def kept(asked: Any, said: str = "", **policy: Any) -> dict[str, str]:
    sample = Specimens(SpecimenPolicy(keep_texts=True, **policy), random.Random(1))
    sample.offer(asked, "weak", said)
    return sample.take()[0]


@given(VALUES)
def test_a_field_that_is_named_is_nowhere_in_what_is_kept_however_deep(value: Any) -> None:
    one = kept({"name": SECRET, "all": {"name": [SECRET, value]}, "age": 7}, hide_fields=("name",))
    assert SECRET not in json.dumps(one)
    assert json.loads(one["instance"]) == {"name": HIDDEN, "all": {"name": HIDDEN}, "age": 7}


def test_a_named_field_has_no_shape_either_and_no_error_quotes_it() -> None:
    one = kept({"name": SECRET, "age": 7}, f"KeyError: {SECRET}", hide_fields=("name",))
    assert "xxxxxxxxx" not in one["shape"]
    assert SECRET not in one["said"]


def test_without_texts_nothing_of_an_instance_is_kept_but_its_shape() -> None:
    sample = Specimens(SpecimenPolicy(), random.Random(1))
    sample.offer({"name": SECRET}, "weak", "")
    assert sample.take() == [{"why": "weak", "said": "", "shape": "{'xxxx': 'xxxxxxxxx'}"}]


@given(VALUES)
def test_what_is_not_hidden_can_be_tried_again(value: Any) -> None:
    written = redaction().as_json(value)
    assert written is None or json.loads(written) == value


def test_patterns_find_texts_and_whole_numbers_within_an_instance_and_leave_measurements() -> None:
    asked = {"mail": "to a.b@example.org", "card": 4111111111111111, "metres": 70.123456789, "rooms": 3}
    written = redaction().as_json(asked)
    assert written is not None
    assert json.loads(written) == {
        "mail": f"to {HIDDEN}",
        "card": HIDDEN,
        "metres": 70.123456789,
        "rooms": 3,
    }


@pytest.mark.parametrize("value", [["x"] * 501, "x" * (MOST_CHARACTERS + 1), [b"bytes"], ["xy" * 900, "xy" * 900]])
def test_what_is_large_or_no_json_is_not_kept_by_halves(value: Any) -> None:
    assert redaction().as_json(value) is None


def test_what_is_deeper_than_anybody_reads_ends_nothing() -> None:
    deep: Any = {"name": SECRET}
    for _ in range(100_000):
        deep = [deep]
    assert redaction("name").as_json(deep) is None
    assert SECRET not in str(redaction("name").without_fields(deep))


def test_patterns_are_tried_on_no_more_characters_than_an_instance_may_have() -> None:
    tried = list[int]()

    class Counting:
        def sub(self, _by: str, text: str) -> str:
            tried.append(len(text))
            return HIDDEN

    counting: Any = Counting()
    many = {f"f{number}": "x" * MOST_CHARACTERS for number in range(400)}
    assert Redaction((), [counting]).as_json(many) is None
    assert sum(tried) <= MOST_CHARACTERS
