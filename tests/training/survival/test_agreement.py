"""What one rank is told or asked, all know after the next sum."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from failsoft.training.ranks import Ranks, SoloRank
from failsoft.training.survival.agreement import NoticedRanks
from failsoft.training.survival.notice import Notice, Word
from failsoft.training.survival.saving_asked import Wish


class Two:
    """Two ranks in one process: the second's numbers are known before the first asks."""

    rank = 0
    world = 2

    def __init__(self, other: Callable[[], Tensor]) -> None:
        self._other = other
        self.sums = 0
        self.says = "other"
        self.gatherings = 0

    def sum_(self, values: Tensor) -> Tensor:
        self.sums += 1
        return values.add_(self._other().to(values.dtype))

    def gather(self, text: str) -> list[str]:
        self.gatherings += 1
        return [text, self.says]

    def broadcast_(self, values: Tensor, source: int) -> Tensor:
        return values


def test_a_word_to_one_rank_is_known_to_all_after_the_next_sum_and_sends_nothing_of_its_own() -> None:
    told = [0.0]
    two = Two(lambda: torch.tensor([10.0, 20.0, told[0], 0.0]))
    ranks: Ranks = NoticedRanks(two, Notice())
    assert isinstance(ranks, NoticedRanks)
    values = torch.tensor([1.0, 2.0])
    assert ranks.sum_(values) is values
    assert values.tolist() == [11.0, 22.0]
    assert ranks.told() is None
    told[0] = 1.0
    assert ranks.told() is None
    ranks.sum_(torch.tensor([1.0, torch.nan]))
    assert ranks.told() == "another rank was told to leave"
    assert ranks.told() == "another rank was told to leave"
    assert two.sums == 2


def test_the_rank_that_was_told_waits_until_the_others_know() -> None:
    notice = Notice()
    ranks = NoticedRanks(Two(lambda: torch.zeros(3)), notice)
    notice.give(Word(why="SIGTERM"))
    assert ranks.told() is None
    ranks.sum_(torch.zeros(1))
    assert ranks.told() == "SIGTERM"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_the_word_rides_on_sums_of_any_shape_and_type(dtype: torch.dtype) -> None:
    notice = Notice()
    notice.give(Word(why="SIGTERM"))
    ranks = NoticedRanks(Two(lambda: torch.zeros(8)), notice)
    values = torch.arange(6).reshape(2, 3).to(dtype)
    assert torch.equal(ranks.sum_(values.clone()), values)
    assert ranks.told() == "SIGTERM"


def test_what_one_rank_is_asked_to_save_all_know_after_the_next_sum_and_it_counts_once_though_both_were_asked() -> None:
    notice, other = Notice(), [0.0]
    two = Two(lambda: torch.tensor([0.0, 0.0, other[0]]))
    two.says = json.dumps([{"id": "a", "why": "by hand"}, {"id": "b", "why": "by hand"}])
    ranks = NoticedRanks(two, notice)
    other[0] = 1.0
    assert ranks.wanted() == []
    ranks.sum_(torch.tensor([torch.nan]))
    notice.wishes.give(Wish(id="a", why="by hand"))
    assert ranks.told() is None
    assert [wish.id for wish in ranks.wanted()] == ["a", "b"]
    notice.wishes.give(Wish(id="b", why="by hand"))  # its file is seen here only now
    other[0] = 0.0
    ranks.sum_(torch.zeros(1))
    assert ranks.wanted() == []
    assert two.gatherings == 1


def test_sums_too_large_to_copy_carry_nothing() -> None:
    notice = Notice()
    notice.give(Word(why="SIGTERM"))
    ranks = NoticedRanks(Two(lambda: torch.zeros(5000)), notice)
    ranks.sum_(torch.zeros(5000))
    assert ranks.told() is None


def test_a_run_of_one_process_needs_nobodys_consent() -> None:
    notice = Notice()
    ranks = NoticedRanks(SoloRank(), notice)
    assert ranks.told() is None
    notice.give(Word(why="SIGTERM"))
    assert ranks.told() == "SIGTERM"
