from __future__ import annotations

from pathlib import Path

import pytest
import torch

from failsoft.health.ledger import Event, read_ledger
from failsoft.training.checkpoints.checkpoint import newest_healthy
from failsoft.training.loop import LoopPlan, TrainLoop
from tests.training.toys import toy_loop


def told(folder: Path, kind: str) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == kind]


def without_room_at_the_end(folder: Path) -> TrainLoop:
    """The moments of the optimizer make the last snapshot larger than the first, and nothing is left for it."""
    loop = toy_loop(
        folder, plan=LoopPlan(total_batches=6, seed=3, snapshot_every_steps=100, checkpoint_every_steps=100)
    )
    loop.guard.optimizer.register_step_post_hook(lambda *_: setattr(loop._snapshots, "_available_bytes", lambda: 0))
    return loop


def test_where_memory_is_too_short_for_one_more_copy_the_final_state_is_published_without(tmp_path: Path) -> None:
    loop = without_room_at_the_end(tmp_path)
    loop.run()
    newest = newest_healthy(loop.checkpoints.store)
    assert newest is not None
    assert newest.manifest.meta["position"] == loop.state.step == 6
    (withheld,) = told(tmp_path, "snapshot_withheld")
    assert "0 bytes" in withheld.why


@pytest.mark.parametrize("ill_at", [2, 5])
def test_a_final_state_that_is_ill_is_not_published_either_where_no_snapshot_looked_at_it(
    tmp_path: Path, ill_at: int
) -> None:
    loop = without_room_at_the_end(tmp_path)
    weight = next(loop.state.model.parameters())

    def fall_ill(*_: object) -> None:
        if loop.state.position == ill_at:
            weight.data.fill_(torch.inf)

    loop.guard.optimizer.register_step_post_hook(fall_ill)
    loop.run()
    assert (loop.state.position, loop.state.step) == (6, 0)
    assert "0.weight is not finite" in told(tmp_path, "rolled_back")[0].why
    assert torch.isfinite(weight).all()
