"""What one rank does when another one is in trouble that it can't see itself: the same as the other."""

from __future__ import annotations

from pathlib import Path

import torch

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.guard import Refusal, StepGuard
from failsoft.training.ranks import Ranks
from failsoft.training.snapshots.snapshot import RamSnapshots
from failsoft.training.state import TrainingState
from tests.training.toys import same, toy_data, toy_model, weights_of


class Fellow:
    """The other rank of two; ``adds`` is what it puts into each sum in turn."""

    rank = 0
    world = 2

    def __init__(self, *adds: list[float] | float) -> None:
        self._adds = list(adds)

    def sum_(self, values: torch.Tensor) -> torch.Tensor:
        return values.add_(torch.tensor(self._adds.pop(0)))

    def gather(self, text: str) -> list[str]:
        return [text, text]

    def broadcast_(self, values: torch.Tensor, source: int) -> torch.Tensor:
        return values


class Follower(Fellow):
    """Rank 1 of two healthy ranks, and what rank 0 says when it has news."""

    rank = 1

    def __init__(self, news: str) -> None:
        super().__init__(0.0, 1.0)
        self._news = news

    def gather(self, text: str) -> list[str]:
        return [self._news, text]


def trainee() -> TrainingState:
    model = toy_model()
    return TrainingState(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.01), position=8, step=8)


def checkpoints(folder: Path, ranks: Ranks) -> Checkpoints:
    clock = ManualClock()
    ledger = Ledger(folder / "ledger.jsonl", clock, side=Side.TRAINING, subject="run")
    store = ArtifactStore(folder / "checkpoints", clock, kind="checkpoint")
    return Checkpoints(store=store, identity={"seed": 1}, ranks=ranks, ledger=ledger)


def test_a_step_that_is_bad_on_another_rank_is_refused_here_without_a_trace() -> None:
    state = trainee()
    before = weights_of(state.model)
    guard = StepGuard(model=state.model, optimizer=state.optimizer, ranks=Fellow([1.0, torch.nan]))
    outcome = guard.step(lambda: guard.model(toy_data()[0]).square().mean())
    assert outcome.refusal is Refusal.ELSEWHERE
    assert same(before, weights_of(state.model))
    assert not state.optimizer.state_dict()["state"]


def test_no_snapshot_is_taken_while_another_rank_is_ill() -> None:
    snapshots = RamSnapshots(trainee(), ranks=Fellow(1.0))
    assert snapshots.take() == "a tensor of another rank"
    assert snapshots.newest is None


def test_no_checkpoint_is_published_while_another_rank_is_ill(tmp_path: Path) -> None:
    shelf = checkpoints(tmp_path, Fellow(1.0))
    assert not shelf.publish(trainee(), {})
    assert (shelf.store.listing(), shelf.position) == ([], None)


def test_a_checkpoint_that_rank_zero_could_not_write_counts_as_none_here(tmp_path: Path) -> None:
    shelf = checkpoints(tmp_path, Follower('{"published": [], "trouble": null}'))
    assert not shelf.publish(trainee(), {})
    assert shelf.position is None


def test_a_checkpoint_that_rank_zero_published_is_known_here(tmp_path: Path) -> None:
    entry = '{"name": "position-000000000008", "position": 8, "metrics": {"loss": 1.5}}'
    told: list[tuple[Path | None, dict[str, float]]] = []
    shelf = checkpoints(tmp_path, Follower(f'{{"published": [{entry}], "trouble": "the disk is full"}}'))
    shelf.deliver = lambda published, metrics: told.append((published, dict(metrics)))
    assert shelf.publish(trainee(), {})
    assert (shelf.position, shelf.trouble, told) == (8, "the disk is full", [(None, {"loss": 1.5})])
