from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from failsoft.errors import SourceError
from failsoft.training.loading import gathering
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.checks import SampleChecks
from failsoft.training.loading.sample import Ask, BadKind
from failsoft.training.loading.tiered_dataset import TieredDataset, in_two_steps
from failsoft.training.loading.tiers import TieredSource


class Shelf:
    """A tier of sample ``i``'s number as text, with a diary; some raise when they are read."""

    name = "shelf"

    def __init__(self, diary: list[str], *, absent: frozenset[int] = frozenset(), size: int = 1) -> None:
        self._diary = diary
        self._absent = absent
        self._size = size

    def shard_of(self, _index: int) -> str:
        return ""

    def fetch(self, index: int) -> bytes:
        self._diary.append(f"read {index}")
        if index in self._absent:
            raise SourceError("not there")
        return str(index).encode().zfill(self._size)


def shelf_of(diary: list[str], **settings: Any) -> TieredDataset:
    def decode(data: bytes) -> float:
        diary.append(f"made {int(data)}")
        if int(data) == 3:
            raise ValueError("torn")
        return float(data)

    return TieredDataset(TieredSource(tiers=(Shelf(diary, **settings),)), decode, size=100)


def checked_of(diary: list[str], dataset: TieredDataset) -> Checked:
    def look(sample: float) -> str | None:
        diary.append(f"looked at {sample:g}")
        return "odd" if sample == 4 else None

    return Checked(dataset, checks=SampleChecks(check=look))


def test_each_step_is_done_for_all_samples_before_the_next_one_and_each_failure_costs_one() -> None:
    diary: list[str] = []
    batch = checked_of(diary, shelf_of(diary, absent=frozenset({2}))).load(Ask(position=0, indices=(1, 2, 3, 4, 5)))
    assert diary == [
        *(f"read {index}" for index in (1, 2, 3, 4, 5)),
        *(f"made {index}" for index in (1, 3, 4, 5)),
        *(f"looked at {index}" for index in (1, 4, 5)),
    ]
    assert batch.data.tolist() == [1, 1, 5, 1, 5]
    assert [(bad.index, bad.kind) for bad in batch.bad] == [
        (2, BadKind.OUT_OF_REACH),
        (3, BadKind.RAISED),
        (4, BadKind.MALFORMED),
    ]


def test_no_more_is_read_ahead_than_may_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_MAX_HELD_BYTES", 25)
    diary: list[str] = []
    shelf_of_films = shelf_of(diary, size=10)
    checked_of(diary, shelf_of_films).load(Ask(position=0, indices=(0, 1, 2, 5, 6, 7, 8)))
    held = most = 0
    for entry in diary:
        held += {"read": 1, "made": -1}.get(entry.split()[0], 0)
        most = max(most, held)
    assert most == 3


def test_a_worker_says_at_each_step_which_sample_it_is_on() -> None:
    """A decoder may kill it as well as a read, and the user's check may hang."""
    diary: list[str] = []
    checked = checked_of(diary, shelf_of(diary))
    checked.watched_by(lambda index: diary.append(f"on {index}"))
    checked.load(Ask(position=0, indices=(1, 2)))
    assert [(before, after) for before, after in zip(diary[::2], diary[1::2], strict=True)] == [
        ("on 1", "read 1"),
        ("on 2", "read 2"),
        ("on 1", "made 1"),
        ("on 2", "made 2"),
        ("on 1", "looked at 1"),
        ("on 2", "looked at 2"),
    ]


def test_a_dataset_with_a_way_of_its_own_to_make_samples_is_asked_for_samples() -> None:
    class Augmented(TieredDataset):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index) + 0.5

    plain: Callable[[bytes], float] = float
    own = Augmented(TieredSource(tiers=(Shelf([]),)), plain, size=9)
    assert in_two_steps(own) is None
    assert Checked(own).load(Ask(position=0, indices=(1, 2))).data.tolist() == [1.5, 2.5]
