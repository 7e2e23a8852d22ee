"""Tags of tokens, and the named pieces that they make."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from failsoft.errors import ConfigError
from failsoft.health.window import Outcome
from failsoft.serving.quality.tags import Tagging, pieces

LABELS = ("O", "B-artist", "I-artist", "B-genre", "I-genre")
RULE = Tagging(labels=LABELS)


def scores(tags: list[str], *, sure: float = 9.0, offsets: list[tuple[int, int]] | None = None) -> dict[str, Any]:
    logits_BTS = np.zeros((1, len(tags) + 2, len(LABELS)))  # two tokens of padding
    for place, tag in enumerate(tags):
        logits_BTS[0, place, LABELS.index(tag)] = sure
    found: dict[str, Any] = {"logits": logits_BTS, "counts": np.array([len(tags)])}
    return found | ({"offsets": [offsets]} if offsets else {})


def test_the_tags_are_the_output_and_the_padding_is_none_of_it() -> None:
    (answer,) = RULE.judge(scores(["O", "B-artist", "I-artist"]), rows=1, measures={})
    assert (answer.output, answer.outcome) == (["O", "B-artist", "I-artist"], Outcome.GOOD)


def test_named_pieces_lie_where_their_tokens_lie() -> None:
    places = [(0, 4), (5, 9), (10, 15)]
    (answer,) = RULE.judge(scores(["O", "B-artist", "I-artist"], offsets=places), rows=1, measures={})
    assert [(piece.start, piece.end, piece.slot) for piece in answer.entities] == [(5, 15, "artist")]


def test_places_may_come_as_an_array_as_tokenizers_give_them() -> None:
    given = scores(["O", "B-artist"]) | {"offsets": np.array([[(0, 4), (5, 9), (0, 0), (0, 0)]])}
    (answer,) = RULE.judge(given, rows=1, measures={})
    assert [(piece.start, piece.end) for piece in answer.entities] == [(5, 9)]


@pytest.mark.parametrize("odd", [None, 7, [None, (5, 9)], [(0,), (5, 9)], [(0.5, 4), (5, 9)], "ab"])
def test_places_that_are_none_cost_the_named_pieces_and_not_the_answer(odd: object) -> None:
    (answer,) = RULE.judge(scores(["O", "B-artist"]) | {"offsets": [odd]}, rows=1, measures={})
    assert (answer.usable, answer.entities) == (True, ())


def test_a_count_beyond_all_tokens_is_all_of_them_and_no_certainty() -> None:
    (answer,) = RULE.judge(scores(["O"], sure=0.1) | {"counts": [1e300]}, rows=1, measures={})
    assert (answer.outcome, answer.usable) == (Outcome.WEAK, False)


def test_a_piece_with_one_unsure_token_is_left_out_and_the_text_is_answered() -> None:
    given = scores(["O", "O", "O", "B-artist", "I-artist"], offsets=[(n, n + 1) for n in range(5)])
    given["logits"][0, 4] = [0.0, 0.0, 0.4, 0.3, 0.0]
    (answer,) = RULE.judge(given, rows=1, measures={})
    assert (answer.usable, answer.entities) == (True, ())


def test_a_text_whose_tags_are_guesses_is_weak_and_given_to_nobody() -> None:
    (answer,) = RULE.judge(scores(["O", "O"], sure=0.1), rows=1, measures={})
    assert (answer.outcome, answer.usable) == (Outcome.WEAK, False)
    assert "entropy" in answer.reason


def test_the_fitted_temperature_makes_an_overconfident_model_honest() -> None:
    (raw,), (fitted,) = (RULE.judge(scores(["O"], sure=4.0), rows=1, measures=m) for m in ({}, {"temperature": 4.0}))
    assert raw.confidence == pytest.approx(math.exp(4.0) / (math.exp(4.0) + 4.0))
    assert fitted.confidence == pytest.approx(math.e / (math.e + 4.0))


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_temperature_lets_nothing_pass(temperature: float) -> None:
    (answer,) = RULE.judge(scores(["O"]), rows=1, measures={"temperature": temperature})
    assert not answer.usable


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ([], []),
        (["O", "O"], []),
        (["B-a", "I-a", "B-a"], [(0, 1, "a"), (2, 2, "a")]),
        (["I-a", "I-a"], [(0, 1, "a")]),
        (["B-a", "I-b"], [(0, 0, "a"), (1, 1, "b")]),
        (["O", "B-a"], [(1, 1, "a")]),
    ],
)
def test_bio_tags_make_pieces(tags: list[str], found: list[tuple[int, int, str]]) -> None:
    assert list(pieces(tags)) == found


def test_labels_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(ConfigError, match="labels are"):
        Tagging(labels=("O", "O"))
