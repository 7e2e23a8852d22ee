"""Rungs for any task, and what a ladder asks of whoever's rungs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.serving.fallback.ladder import FallbackLadder
from failsoft.serving.fallback.plain_rungs import ConstantRung, FunctionRung
from failsoft.serving.seam import Rung, RungAnswer

ODD: tuple[Any, ...] = (None, "", 0, [], {})
anything = st.recursive(st.none() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3))


@given(anything)
def test_a_constant_answers_anything_and_claims_no_confidence(item: Any) -> None:
    answer = FallbackLadder([ConstantRung({"price": 300})], probes=ODD).answer(item, "late")
    assert (answer.output, answer.source, answer.confidence) == ({"price": 300}, "constant", None)


def test_functions_answer_in_their_order_and_under_their_names() -> None:
    ladder = FallbackLadder(
        [
            FunctionRung("by_size", lambda item: item["size"] * 4.0),
            FunctionRung("by_town", lambda item: {"rome": 500.0}.get(item["town"])),
            ConstantRung(300.0, name="mean"),
        ],
        probes=ODD,
    )
    items: list[Any] = [{"size": 50, "town": "rome"}, {"town": "rome"}, {"town": "oslo"}, None]
    answers = [ladder.answer(item, "late") for item in items]
    assert [(answer.source, answer.output) for answer in answers] == [
        ("by_size", 200.0),
        ("by_town", 500.0),
        ("mean", 300.0),
        ("mean", 300.0),
    ]
    assert ladder.failures == {"by_size": 3, "by_town": 1}


def test_a_function_may_say_how_sure_it_is() -> None:
    sure = FunctionRung("trees", lambda _item: RungAnswer(output="yes", confidence=0.8))
    answer = FallbackLadder([sure], probes=["?"]).answer("x", "late")
    assert (answer.source, answer.confidence) == ("trees", 0.8)


@pytest.mark.parametrize("output", [math.nan, [1.0, math.inf], object(), np.float32("nan")])
def test_an_output_that_nobody_could_be_sent_is_a_failure_of_its_rung(output: Any) -> None:
    ladder = FallbackLadder([FunctionRung("odd", lambda _item: output), ConstantRung(1)], probes=ODD)
    assert (ladder.answer("x", "late").source, ladder.failures) == ("constant", {"odd": 1})


@pytest.mark.parametrize("output", [0, False, 0.0, [], {}])
def test_zero_false_and_nothing_found_are_answers(output: Any) -> None:
    assert FallbackLadder([ConstantRung(output)], probes=ODD).answer("x", "late").output == output


def test_outputs_of_numpy_are_sent_as_numbers_and_lists() -> None:
    ladder = FallbackLadder([FunctionRung("mean", lambda _item: np.array([1.5, 2.5])), ConstantRung(0)], probes=ODD)
    assert ladder.answer("x", "late").output == [1.5, 2.5]


@pytest.mark.parametrize(
    ("rungs", "words"),
    [
        ([ConstantRung(1, name="primary")], "a rung is named 'primary'; give it a name of its own"),
        ([ConstantRung(1, name="")], "a rung is named ''"),
        ([ConstantRung(1), ConstantRung(2)], "each needs a name of its own"),
        ([FunctionRung("size", lambda item: item["size"])], r"the last rung \(size\) raised on None: .*ConstantRung"),
        ([FunctionRung("none", lambda _item: None)], r"the last rung \(none\) has no answer to None"),
        ([ConstantRung(math.nan)], "raised on None: an output holds nan"),
    ],
)
def test_rungs_that_cannot_be_told_apart_or_may_fail_are_refused_with_the_mend(
    rungs: Sequence[Rung], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        FallbackLadder(rungs, probes=ODD)


def test_a_ladder_that_would_prove_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="there are no probes"):
        FallbackLadder([ConstantRung(1)], probes=[])
