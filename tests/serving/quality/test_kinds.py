"""What every quality kind promises, whatever the scores hold: one judgement for each item, and NaN never counts."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from failsoft.errors import ConfigError
from failsoft.health.window import Outcome
from failsoft.serving.arms.replies import ModelReply, agreement, checked, read_reply
from failsoft.serving.quality.classes import Classification
from failsoft.serving.quality.kinds import KINDS, quality_named
from failsoft.serving.quality.limits import Limits
from failsoft.serving.quality.numbers import Regression
from failsoft.serving.quality.own import OwnConfidence
from failsoft.serving.quality.tags import Tagging
from failsoft.serving.request import Reading
from failsoft.serving.seam import Judged, Measures, Quality

LABELS = ("O", "B-artist", "I-artist")


def own_confidence(scores: Any) -> Any:
    return scores["sure"]


def own_outputs(scores: Any) -> list[Any]:
    return list(scores["ids"])


OWN = OwnConfidence(confidence=own_confidence, outputs=own_outputs)
HEALTHY: dict[str, tuple[Quality, Any]] = {
    "classification": (Classification(labels=("cat", "dog")), np.array([[9.0, 0.0], [0.0, 9.0]])),
    "tagging": (
        Tagging(labels=LABELS),
        {"logits": np.array([[[9.0, 0, 0], [0, 9.0, 0]], [[9.0, 0, 0], [0, 0, 0]]]), "counts": np.array([2, 1])},
    ),
    "regression": (
        Regression(tolerance=2.0),
        {"mean": np.array([10.0, 12.0]), "std": np.array([0.5, 0.5])},
    ),
    "own": (OWN, {"sure": np.array([0.9, 0.8]), "ids": [["a", "b"], ["c"]], "vectors": np.ones((2, 4))}),
}


def read(quality: Quality, scores: Any, *, rows: int = 2, measures: Measures | None = None) -> list[Reading]:
    """As a gateway reads a reply."""
    return read_reply(
        ModelReply(scores=scores, measures=measures or {}, release="r1", load_generation=1), quality, texts=rows
    )


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_scores_are_good_answers(name: str) -> None:
    quality, scores = HEALTHY[name]
    readings = read(quality, scores)
    assert [(reading.outcome, reading.usable, reading.why) for reading in readings] == [(Outcome.GOOD, True, "")] * 2
    assert all(agreement(quality, reading.output, reading.output) for reading in readings)
    assert agreement(quality, readings[0].output, readings[1].output) is False or name == "regression"


def with_number(scores: Any, number: float) -> Any:
    """The same with ``number`` in the first row of every array of numbers."""
    if isinstance(scores, dict):
        return {name: with_number(part, number) for name, part in scores.items()}
    if not isinstance(scores, np.ndarray) or scores.dtype.kind != "f":
        return scores
    broken = scores.copy()
    broken[0] = number
    return broken


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_row_with_a_number_that_is_none_is_weak_and_given_to_nobody_and_the_other_row_is_good(
    name: str, number: float
) -> None:
    quality, scores = HEALTHY[name]
    bad, good = read(quality, with_number(scores, number))
    assert (bad.outcome, bad.usable) == (Outcome.WEAK, False)
    assert bad.why
    assert (good.outcome, good.usable) == (Outcome.GOOD, True)


GARBAGE: list[Any] = [
    None,
    "scores",
    {},
    [],
    [[1.0], [1.0, 2.0]],
    np.zeros((0, 0)),
    np.zeros(2),
    np.zeros((2, 0)),
    np.zeros((3, 3, 3, 3)),
    {"logits": None, "mean": "x", "std": None, "counts": None},
    {"mean": np.zeros(3), "std": np.zeros(2), "logits": np.zeros((2, 2, 2)), "counts": [1, -1]},
    {"logits": np.zeros((2, 2, 3)), "counts": np.array([math.nan, 1.0])},
]


@pytest.mark.parametrize("scores", GARBAGE, ids=repr)
@pytest.mark.parametrize("name", ["classification", "tagging", "regression"])
def test_scores_of_any_shape_make_unusable_answers_and_raise_nothing(name: str, scores: Any) -> None:
    readings = read(HEALTHY[name][0], scores)
    assert [(reading.outcome, reading.usable) for reading in readings] == [(Outcome.WEAK, False)] * 2


@given(arrays.arrays(np.float64, (2, 3), elements=st.floats(width=64)))
def test_no_scores_at_all_make_a_good_answer_without_an_honest_confidence(array_BC: np.ndarray[Any, Any]) -> None:
    kinds: list[tuple[Quality, Any]] = [
        (Classification(), array_BC),
        (Regression(tolerance=1.0), {"mean": array_BC, "std": array_BC}),
        (Tagging(labels=LABELS), {"logits": array_BC[:, np.newaxis], "counts": [1, 1]}),
        (OWN, {"sure": array_BC[:, 0], "ids": [1, 2], "scores": array_BC}),
    ]
    with np.errstate(all="ignore"):
        for quality, scores in kinds:
            for row, reading in zip(array_BC, read(quality, scores), strict=True):
                assert reading.outcome is not Outcome.GOOD or (0.65 <= reading.confidence <= 1.0 + 1e-9)
                assert np.isfinite(row).all() or not reading.usable


class Raising(Quality):
    def judge(self, scores: Any, *, rows: int, measures: Measures) -> list[Judged]:
        raise ZeroDivisionError

    def agrees(self, one: Any, other: Any) -> bool:
        raise ZeroDivisionError


HOLDS_ITSELF: list[Any] = []
HOLDS_ITSELF.append(HOLDS_ITSELF)


class Sloppy(Quality):
    """Calls everything good."""

    def judge(self, scores: Any, *, rows: int, measures: Measures) -> list[Judged]:
        return [
            Judged(output=output, confidence=sure, outcome=Outcome.GOOD, usable=True, reason="")
            for output, sure in scores
        ]


@pytest.mark.parametrize(
    ("output", "confidence", "words"),
    [
        ("yes", math.nan, "confidence is nan"),
        ("yes", 1.5, "confidence is 1.5"),
        (None, 0.9, "no answer"),
        (math.nan, 0.9, "holds nan"),
        ([1.0, math.inf], 0.9, "holds inf"),
        (object(), 0.9, "holds a object"),
        (HOLDS_ITSELF, 0.9, "recursion"),
        ("yes", None, "confidence is None"),
        ("yes", np.array([0.9]), "confidence is array"),
    ],
)
def test_what_an_own_kind_calls_good_is_not_when_it_is_no_answer(output: Any, confidence: float, words: str) -> None:
    bad, good = read(Sloppy(), [(output, confidence), ("fine", 0.9)])
    assert (bad.outcome, bad.usable) == (Outcome.WEAK, False)
    assert words in bad.why
    assert (good.output, good.usable) == ("fine", True)


FINE = Judged(output="fine", confidence=0.9, outcome=Outcome.GOOD, usable=True, reason="")


class Listed(Quality):
    """Its scores are its judgements."""

    def judge(self, scores: Any, *, rows: int, measures: Measures) -> list[Judged]:
        return list(scores)


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (None, "a NoneType is no judgement"),
        (FINE._replace(label=["jazz"]), "label is ['jazz'], which is no text"),  # type: ignore[arg-type]
        (FINE._replace(reason=None), "reason is None"),  # type: ignore[arg-type]
        (FINE._replace(oov_share=None), "oov_share is None"),  # type: ignore[arg-type]
        (FINE._replace(entities=({"start": 0},)), "entities are none"),  # type: ignore[arg-type]
    ],
)
def test_a_judgement_that_could_not_be_counted_costs_only_its_own_item_the_answer(odd: Any, words: str) -> None:
    bad, good = read(Listed(), [odd, FINE])
    assert (bad.outcome, bad.usable, good.usable) == (Outcome.WEAK, False, True)
    assert words in bad.why


def test_what_is_wrong_with_an_answer_can_be_sent_whatever_characters_it_names() -> None:
    doubted = FINE._replace(reason="no such town: \ud83d", outcome=Outcome.WEAK)
    (reading,) = read(Listed(), [doubted], rows=1)
    assert reading.why == "no such town: \ufffd"


def test_a_confidence_of_numpy_is_a_number_like_others() -> None:
    (reading,) = read(Listed(), [FINE._replace(confidence=np.float32(0.75))], rows=1)  # type: ignore[arg-type]
    assert (type(reading.confidence), reading.confidence, reading.usable) == (float, 0.75, True)


def test_another_number_of_judgements_than_items_answers_none_of_them() -> None:
    assert [reading.usable for reading in read(Sloppy(), [("fine", 0.9)], rows=3)] == [False] * 3


def test_outputs_of_numpy_become_what_json_carries() -> None:
    (reading,) = read(Sloppy(), [({"ids": np.arange(2), "score": np.float32(0.5)}, 0.9)], rows=1)
    assert reading.output == {"ids": [0, 1], "score": 0.5}
    assert type(reading.output["score"]) is float


def test_outputs_that_an_own_kind_cannot_compare_are_neither_alike_nor_unlike() -> None:
    assert agreement(Raising(), 1, 2) is None


def test_a_judgement_that_is_in_order_is_handed_on_as_it_is() -> None:
    judged = Judged(output="yes", confidence=0.9, outcome=Outcome.GOOD, usable=True, reason="")
    assert checked(judged) is judged


@pytest.mark.parametrize("name", HEALTHY)
def test_a_kind_travels_to_other_processes(name: str) -> None:
    quality, scores = HEALTHY[name]
    there = pickle.loads(pickle.dumps(quality))  # noqa: S301 -- made in this line
    assert repr(read(there, scores)) == repr(read(quality, scores)), "as written: NaN equals nothing"


def test_kinds_have_names_and_an_unknown_one_is_refused_with_those_there_are() -> None:
    assert {name: type(quality_named(name)).__name__ for name in KINDS} == {
        "classification": "Classification",
        "intents": "IntentsAndEntities",
    }
    with pytest.raises(ConfigError, match="no quality kind 'regresion'; use one of"):
        quality_named("regresion")


@pytest.mark.parametrize(("low", "cutoff"), [(0.4, 0.5), (math.nan, 0.5), (1.1, 0.5), (0.65, -0.1)])
def test_limits_that_everything_or_nothing_passes_are_refused(low: float, cutoff: float) -> None:
    with pytest.raises(ConfigError, match="cutoff_confidence is"):
        Limits(low_confidence=low, cutoff_confidence=cutoff)
