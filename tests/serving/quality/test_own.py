"""A confidence of the user's own: here a ranking by the distance of its two best."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from failsoft.errors import ConfigError
from failsoft.health.window import Outcome
from failsoft.serving.quality.own import OwnConfidence, same_top


def lead(scores: Any) -> Any:
    best_B2 = -np.sort(-scores, axis=1)[:, :2]
    return best_B2[:, 0] - best_B2[:, 1]


def order(scores: Any) -> list[list[int]]:
    ranked: list[list[int]] = np.argsort(-scores, axis=1).tolist()
    return ranked


RANKING = OwnConfidence(confidence=lead, outputs=order, same=same_top(2))


def test_a_ranking_is_judged_by_its_own_confidence() -> None:
    clear, close, tied = RANKING.judge(
        np.array([[0.9, 0.1, 0.0], [0.75, 0.05, 0.2], [0.5, 0.5, 0.0]]), rows=3, measures={}
    )
    assert (clear.output, clear.outcome) == ([0, 1, 2], Outcome.GOOD)
    assert (close.outcome, close.usable) == (Outcome.WEAK, True)
    assert (tied.outcome, tied.usable) == (Outcome.WEAK, False)


def test_confidences_of_another_number_of_items_are_no_answer() -> None:
    assert [row.usable for row in RANKING.judge(np.ones((2, 3)), rows=3, measures={})] == [False] * 3


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [([1, 2, 3], [2, 1, 9], True), ([1, 2], [1, 9], True), ([1, 2], [8, 9], False), ([], [], True), ([], [1], False)],
)
def test_rankings_agree_when_enough_of_their_best_is_the_same(one: list[int], other: list[int], alike: bool) -> None:
    assert RANKING.agrees(one, other) is alike


@pytest.mark.parametrize(("count", "share"), [(0, 0.5), (3, 0.0), (3, 1.1)])
def test_an_agreement_that_all_or_none_would_reach_is_refused(count: int, share: float) -> None:
    with pytest.raises(ConfigError, match="min_share"):
        same_top(count, min_share=share)
