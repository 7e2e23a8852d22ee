"""The loop with its checkpoints written behind it, by a real process and by one that does what a test says."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import TrainingError
from failsoft.health import aside
from failsoft.health.clock import ManualClock
from failsoft.health.faults import Fault, FaultKind, FaultPlan
from failsoft.health.ledger import Ledger, Side, read_ledger
from failsoft.training.checkpoints.checkpoint import newest_healthy
from failsoft.training.checkpoints.writer import CheckpointWriter
from failsoft.training.checkpoints.writer_link import Message
from failsoft.training.checkpoints.writer_policy import WriterPolicy
from failsoft.training.loop import LoopPlan, TrainLoop
from tests.training.fake_link import FakeLink, refused
from tests.training.test_loop import die_at, event, kinds
from tests.training.toys import same, toy_loop, weights_of, written_behind


class Refusing(FakeLink):
    """A writer whose disk is full for good."""

    def send(self, order: Message, memory: int) -> None:
        super().send(order, memory)
        self.says.append(refused("No space left on device"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> TrainLoop:
    loop = toy_loop(tmp_path_factory.mktemp("undisturbed"))
    loop.run()
    return loop


def test_written_behind_the_end_is_the_same_and_is_published(tmp_path: Path, undisturbed: TrainLoop) -> None:
    loop = written_behind(toy_loop(tmp_path))
    loop.run()
    assert same(weights_of(loop.state.model), weights_of(undisturbed.state.model))
    newest = newest_healthy(loop.checkpoints.store)
    assert newest is not None
    assert newest.manifest.meta["position"] == 24
    old = newest_healthy(undisturbed.checkpoints.store)
    assert old is not None
    assert newest.manifest.files["state.safetensors"] == old.manifest.files["state.safetensors"]


def test_a_run_that_died_goes_on_from_what_was_written_behind_it(tmp_path: Path, undisturbed: TrainLoop) -> None:
    die_at(written_behind(toy_loop(tmp_path)), 21)
    again = written_behind(toy_loop(tmp_path))
    again.run()
    assert event(tmp_path, "restored").data["checkpoint"] == "position-000000000016"
    assert same(weights_of(again.state.model), weights_of(undisturbed.state.model))


def test_a_run_that_stops_with_a_diagnosis_keeps_the_checkpoint_on_its_way(tmp_path: Path) -> None:
    faults = FaultPlan(faults=tuple(Fault(kind=FaultKind.NAN_BATCH, position=p) for p in range(9, 200)))
    plan = LoopPlan(total_batches=200, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8)
    with pytest.raises(TrainingError):
        written_behind(toy_loop(tmp_path, faults=faults, plan=plan)).run()
    store = ArtifactStore(tmp_path / "checkpoints", ManualClock(), kind="checkpoint")
    assert [artifact.name for artifact in store.listing()] == ["position-000000000008"]
    assert {"checkpoint_published", "run_stopped"} <= set(kinds(tmp_path))


def test_a_disk_that_refuses_for_too_long_stops_the_run_with_a_diagnosis(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, plan=LoopPlan(total_batches=99, seed=3, snapshot_every_steps=2, checkpoint_every_steps=4))
    clock = ManualClock()
    policy = WriterPolicy(max_failures_in_a_row=3)
    writer = CheckpointWriter(loop.checkpoints.store, clock=clock, policy=policy, start=lambda: Refusing(clock))
    with pytest.raises(TrainingError, match=r"3 checkpoints in a row could not be written.*No space left"):
        written_behind(loop, writer).run()
    assert kinds(tmp_path).count("checkpoint_failed") == 3
    assert "mend the storage" in event(tmp_path, "run_stopped").why
    assert loop.state.position < 99


def test_a_checkpoint_is_taken_at_the_end_of_each_epoch_and_after_some_time(tmp_path: Path) -> None:
    plan = LoopPlan(total_batches=24, seed=3, snapshot_every_steps=3, checkpoint_every_steps=99)
    by_epoch = toy_loop(tmp_path / "epoch", plan=LoopPlan(**(vars(plan) | {"checkpoint_at_epoch_end": True})))
    by_epoch.run()
    assert published(tmp_path / "epoch") == [8, 16, 24]
    by_time = toy_loop(tmp_path / "time", plan=LoopPlan(**(vars(plan) | {"checkpoint_every_s": 5.0})))
    clock = by_time.desk.clock
    assert isinstance(clock, ManualClock)
    by_time.state.optimizer.register_step_post_hook(lambda *_: clock.advance(1.0))
    by_time.run()
    assert published(tmp_path / "time") == [6, 12, 18, 24]


def test_an_epoch_whose_last_batches_are_refused_ends_with_a_checkpoint_all_the_same(tmp_path: Path) -> None:
    plan = LoopPlan(
        total_batches=24, seed=3, snapshot_every_steps=3, checkpoint_every_steps=99, checkpoint_at_epoch_end=True
    )
    ill = FaultPlan(faults=tuple(Fault(kind=FaultKind.NAN_BATCH, position=position) for position in (6, 7)))
    toy_loop(tmp_path, plan=plan, faults=ill).run()
    assert published(tmp_path) == [9, 16, 24]


def test_checkpoints_come_at_the_interval_that_wastes_least_by_what_they_are_seen_to_cost(tmp_path: Path) -> None:
    """Assumed at 1 s, a failure each 32 s: every 7.4 s; then they cost nothing, and each meeting has one."""
    loop = toy_loop(tmp_path, plan=LoopPlan(total_batches=24, seed=3, snapshot_every_steps=3, node_mtbf_s=32.0))
    clock = loop.desk.clock
    assert isinstance(clock, ManualClock)
    loop.state.optimizer.register_step_post_hook(lambda *_: clock.advance(1.0))
    loop.run()
    assert published(tmp_path) == [9, 12, 15, 18, 21, 24]
    (told,) = [entry for entry in read_ledger(tmp_path / "ledger.jsonl").events if entry.kind == "checkpoint_interval"]
    assert told.data["cost_s"] == 1e-3
    assert "(Daly 2006)" in told.why


def published(folder: Path) -> list[int]:
    events = read_ledger(folder / "ledger.jsonl").events
    return [int(entry.data["position"]) for entry in events if entry.kind == "checkpoint_published"]


def test_a_folder_without_its_mark_is_no_checkpoint_and_is_put_aside(tmp_path: Path, undisturbed: TrainLoop) -> None:
    die_at(toy_loop(tmp_path), 13)
    emergency = tmp_path / "checkpoints" / "step_99"
    emergency.mkdir()
    (emergency / "state.safetensors").write_bytes(b"half of an emergency save")
    again = toy_loop(tmp_path)
    again.run()
    assert event(tmp_path, "restored").data["checkpoint"] == "position-000000000008"
    assert event(tmp_path, "checkpoint_quarantined").data["name"] == "step_99"
    assert not emergency.exists()
    assert same(weights_of(again.state.model), weights_of(undisturbed.state.model))


def test_a_newest_checkpoint_cut_to_nothing_is_put_aside_for_the_one_before(tmp_path: Path) -> None:
    toy_loop(tmp_path).run()
    (tmp_path / "checkpoints" / "position-000000000024" / "state.safetensors").write_bytes(b"")
    toy_loop(tmp_path).run()
    assert event(tmp_path, "checkpoint_quarantined").data["name"] == "position-000000000024"
    assert event(tmp_path, "restored").data["checkpoint"] == "position-000000000016"


def test_on_storage_that_answers_late_the_last_words_of_a_run_are_written_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside, "PATIENCE_S", 0.0)
    loop, waited_for = toy_loop(tmp_path), threading.Event()
    ledger = Ledger(
        tmp_path / "late.jsonl", ManualClock(), side=Side.TRAINING, subject="run", aside=aside.Aside(ManualClock())
    )
    loop.checkpoints.ledger, settle = ledger, ledger.settle

    def settled(*, within_s: float | None = None) -> None:
        waited_for.set()  # as late as it can be
        settle(within_s=within_s)

    def answer_late() -> None:
        assert waited_for.wait(60.0)

    monkeypatch.setattr(ledger, "settle", settled)
    assert ledger._aside is not None
    ledger._aside.do(answer_late)
    written_behind(loop).checkpoints.submit(loop.state, {})
    loop.checkpoints.close()
    assert [event.kind for event in read_ledger(ledger.path).events] == ["checkpoint_published"]
