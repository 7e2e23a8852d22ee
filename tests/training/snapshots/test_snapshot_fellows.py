"""What one rank makes of what another tells it about a snapshot: the same as all others do."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from failsoft.errors import ConfigError, NoSnapshotError
from failsoft.training.snapshots.snapshot import RamSnapshots, SnapshotPolicy
from failsoft.training.snapshots.snapshot_memory import RankNote
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from failsoft.training.state import TrainingState, flatten
from tests.training.toys import same, toy_model

Answer = Callable[[str], str]


class Fellow:
    """Rank 1 of two, which says what it was told to say: its answer to each gathering, its part of each sum."""

    rank, world = 0, 2

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.adds = 0.0

    def sum_(self, values: Tensor) -> Tensor:
        return values.add_(self.adds)

    def gather(self, text: str) -> list[str]:
        answer = self.answers.pop(0) if self.answers else _as_asked
        return [text, answer(text)]

    def broadcast_(self, values: Tensor, source: int) -> Tensor:
        return values


def _as_asked(text: str) -> str:
    return text


def but(**changes: object) -> Answer:
    """The note of a rank like this one, but for something."""
    return lambda text: json.dumps(json.loads(text) | {"rank": 1} | changes)


@pytest.fixture
def fellow() -> Fellow:
    return Fellow()


def trainee(fellow: Fellow, place: SnapshotPlace = SnapshotPlace.SHARDED) -> tuple[TrainingState, RamSnapshots]:
    model = toy_model()
    state = TrainingState(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.01))
    return state, RamSnapshots(state, ranks=fellow, policy=SnapshotPolicy(where=place), available_bytes=lambda: 2000)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"problem": "x is sparse"}, "rank 1: x is sparse"),
        ({"digest": "other"}, r"ranks \[1\] differ from rank 0 .*EACH_RANK"),
        ({"needed_bytes": 5000}, r"need \d+ bytes .* of 2 rank\(s\)"),
        ({"needed_bytes": 5000, "available_bytes": 100}, "90% of the 100 bytes"),
    ],
)
def test_what_keeps_another_rank_from_a_snapshot_keeps_this_one_too(
    fellow: Fellow, changes: dict[str, object], words: str
) -> None:
    _, snapshots = trainee(fellow)
    fellow.answers = [but(**changes)]
    with pytest.raises(ConfigError, match=words):
        snapshots.take()
    assert (snapshots.newest, snapshots.held_bytes) == (None, 0)


def test_a_rank_that_needs_much_on_another_machine_is_no_reason_here(fellow: Fellow) -> None:
    _, snapshots = trainee(fellow)
    fellow.answers = [but(host="elsewhere", needed_bytes=5000, available_bytes=10_000)]
    assert snapshots.take() is None


def test_a_rank_that_found_no_memory_is_heard_and_the_old_snapshot_stands(fellow: Fellow) -> None:
    state, snapshots = trainee(fellow, SnapshotPlace.EACH_RANK)
    before = {name: tensor.clone() for name, tensor in flatten(state).tensors.items()}
    assert snapshots.take() is None
    with torch.no_grad():
        next(state.model.parameters()).add_(1.0)
    fellow.answers = [_as_asked, lambda _text: json.dumps(["no memory", None])]
    fellow.adds = 1.0
    with pytest.raises(ConfigError, match="rank 1: no memory"):
        snapshots.take()
    snapshots.restore()
    assert same(before, flatten(state).tensors)


def test_the_other_rank_s_ill_tensor_is_named_with_its_rank(fellow: Fellow) -> None:
    _, snapshots = trainee(fellow)
    fellow.answers, fellow.adds = [_as_asked, lambda _text: json.dumps([None, "model/x"])], 1.0
    assert snapshots.take() == "model/x on rank 1"


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"digest": ""}, NoSnapshotError, "no snapshot on rank 1"),
        ({"digest": "step 9"}, ConfigError, "differ from rank 0"),
        ({"problem": "it changed shape"}, ConfigError, "rank 1: it changed shape"),
    ],
)
def test_no_rank_goes_back_without_the_other(
    fellow: Fellow, changes: dict[str, object], error: type[Exception], words: str
) -> None:
    state, snapshots = trainee(fellow)
    snapshots.take()
    with torch.no_grad():
        next(state.model.parameters()).add_(1.0)
    before = {name: tensor.clone() for name, tensor in flatten(state).tensors.items()}
    fellow.answers = [but(**changes)]
    with pytest.raises(error, match=words):
        snapshots.restore()
    assert same(before, flatten(state).tensors)


def test_the_notes_are_what_this_test_takes_them_for(fellow: Fellow) -> None:
    text = RankNote(rank=0, host="a", digest="d").to_json()
    assert RankNote.from_json(but(host="b")(text)) == RankNote(rank=1, host="b", digest="d")
