"""Checkpoints of an undone stretch are taken back, also by a disk that refuses at first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from failsoft.errors import FailsoftError
from failsoft.health.ledger import read_ledger
from failsoft.training.checkpoints import withdrawn
from failsoft.training.loop import LoopPlan, TrainLoop
from tests.artifacts.odd_files import Disk
from tests.training.checkpoints.test_restoring import mirrored
from tests.training.test_loop import event, kinds
from tests.training.test_recovery import nan, plan
from tests.training.toys import same, toy_loop, weights_of

PLAN: LoopPlan = plan()


def positions(folder: Path, kind: str) -> list[int]:
    return [int(one.data["position"]) for one in read_ledger(folder / "ledger.jsonl").events if one.kind == kind]


def at_first(call: Callable[..., object], times: int) -> Callable[..., object]:
    """The same, but the disk refuses the first ``times``."""
    refused: list[object] = []

    def guarded(*args: object) -> object:
        if len(refused) < times:
            refused.append(args)
            raise OSError(28, "No space left on device")
        return call(*args)

    return guarded


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> TrainLoop:
    loop = toy_loop(tmp_path_factory.mktemp("undisturbed"), plan=PLAN, faults=nan(18, 15))
    loop.run()
    return loop


@pytest.mark.parametrize("refuses", ["to remove", "to note for the remote store"])
def test_a_disk_that_lets_undone_checkpoints_go_too_late_costs_one_checkpoint_and_not_the_run(
    refuses: str, tmp_path: Path, undisturbed: TrainLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = mirrored(toy_loop(tmp_path, plan=PLAN, faults=nan(18, 15)), Disk())
    store = loop.checkpoints.store
    if refuses == "to remove":
        monkeypatch.setattr(store, "remove", at_first(store.remove, 2))
    else:
        monkeypatch.setattr(withdrawn, "note_withdrawn", at_first(withdrawn.note_withdrawn, 2))
    loop.run()
    assert "No space left" in event(tmp_path, "checkpoint_withdrawal_refused").why
    assert "can't be removed first" in event(tmp_path, "checkpoint_failed").why
    assert same(weights_of(loop.state.model), weights_of(undisturbed.state.model))
    assert "position-000000000016" not in {artifact.name for artifact in store.listing()}
    assert len(withdrawn.withdrawn(store.root)) == 1


def test_while_the_disk_holds_undone_checkpoints_nothing_new_is_published_and_the_run_stops_cleanly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = toy_loop(tmp_path, plan=plan(total=120), faults=nan(18, 15))
    monkeypatch.setattr(loop.checkpoints.store, "remove", at_first(loop.checkpoints.store.remove, 99))
    with pytest.raises(FailsoftError, match="could not be written"):
        loop.run()
    assert positions(tmp_path, "checkpoint_published") == [8, 16]
    assert kinds(tmp_path).count("checkpoint_failed") == 5
