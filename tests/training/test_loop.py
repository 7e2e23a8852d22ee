from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from failsoft.errors import DropRateError, IncompatibleArtifactError, TrainingError
from failsoft.health.faults import Fault, FaultKind, FaultPlan, burst
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.letters.deadletters import read_dead_letters
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.progress import Phase, read_progress
from failsoft.training.state import TrainingState
from failsoft.training.summary import summarise
from failsoft.training.survival.watch_policy import WatchPhase
from tests.training.toys import ToyTask, same, toy_loop, weights_of


class Death(BaseException):
    """Stands for a SIGKILL: nothing in the loop may catch it."""


def nan_at(*positions: int) -> FaultPlan:
    return FaultPlan(faults=tuple(Fault(kind=FaultKind.NAN_BATCH, position=position) for position in positions))


def die_at(loop: TrainLoop, position: int) -> None:
    """Let the loop run until just before the batch at ``position``, then die."""
    task = loop.task
    assert isinstance(task, ToyTask)
    loss = task.loss

    def deadly(indices: object) -> torch.Tensor:
        if loop.state.position == position:
            raise Death
        return loss(indices)  # type: ignore[arg-type]

    task.loss = deadly  # type: ignore[method-assign]
    with pytest.raises(Death):
        loop.run()


def kinds(folder: Path) -> list[str]:
    return [event.kind for event in read_ledger(folder / "ledger.jsonl").events]


def event(folder: Path, kind: str) -> Event:
    return next(event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == kind)


def test_a_run_ends_with_a_checkpoint_and_a_story(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path)
    loop.run()
    assert loop.state.position == loop.state.step == 24
    saved = ["checkpoint_published", "checkpoint_handed_over"]
    told = [kind for kind in kinds(tmp_path) if kind != "snapshot_memory"]
    assert told == ["workers_up", "run_started", *saved * 3, "run_moved", "run_finished"]
    progress = read_progress(tmp_path)
    assert progress is not None
    assert (progress.position, progress.total, progress.attempt) == (24, 24, 1)
    assert progress.loss is not None


@pytest.mark.parametrize("deaths", [[5], [8], [9, 9], [3, 12, 17, 23], [16, 16, 17]])
def test_a_run_killed_anywhere_ends_with_the_weights_of_the_undisturbed_run(tmp_path: Path, deaths: list[int]) -> None:
    undisturbed = toy_loop(tmp_path / "undisturbed")
    undisturbed.run()
    for position in deaths:
        die_at(toy_loop(tmp_path / "killed"), position)
    last = toy_loop(tmp_path / "killed")
    last.run()
    assert same(weights_of(last.state.model), weights_of(undisturbed.state.model))
    summary = summarise(read_ledger(tmp_path / "killed" / "ledger.jsonl").events, run="killed")
    assert (summary.worker_deaths, summary.steps_applied) == (len(deaths), 24)


@pytest.mark.parametrize("death", [9, 15, 20])
def test_a_kill_before_or_after_a_rollback_changes_nothing_either(tmp_path: Path, death: int) -> None:
    faults = FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=10, count=5))
    undisturbed = toy_loop(tmp_path / "undisturbed", faults=faults)
    undisturbed.run()
    die_at(toy_loop(tmp_path / "killed", faults=faults), death)
    last = toy_loop(tmp_path / "killed", faults=faults)
    last.run()
    assert same(weights_of(last.state.model), weights_of(undisturbed.state.model))
    assert last.breaker.state_dict() == undisturbed.breaker.state_dict()
    summary = summarise(read_ledger(tmp_path / "killed" / "ledger.jsonl").events, run="killed")
    assert (summary.batches_refused, summary.rollbacks) == (5, 1)


class SecondUpdates:
    """A validation after every second update, which notes during which phase it was asked."""

    def __init__(self, loop: TrainLoop) -> None:
        self.loop = loop
        self.phase = WatchPhase.STEP
        self.seen: list[tuple[int, WatchPhase]] = []

    def begins(self, position: int) -> None:
        self.phase = WatchPhase.STEP

    @contextmanager
    def during(self, phase: WatchPhase) -> Iterator[None]:
        before, self.phase = self.phase, phase
        yield
        self.phase = before

    def due(self, state: TrainingState) -> bool:
        return state.step % 2 == 0

    def run(self) -> Mapping[str, float]:
        self.seen.append((self.loop.state.step, self.phase))
        return {"accuracy": self.loop.state.step / 100}


def test_a_validation_has_its_own_phase_and_its_findings_judge_the_next_checkpoint(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path)
    looks = SecondUpdates(loop)
    loop.validation = loop.watch = looks
    loop.run()
    assert looks.seen == [(step, WatchPhase.VALIDATION) for step in range(2, 25, 2)]
    metrics = [artifact.manifest.meta["metrics"]["accuracy"] for artifact in loop.checkpoints.store.listing()]
    assert metrics == [0.08, 0.16, 0.24]


def test_refused_batches_are_skipped_counted_and_buried(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, faults=nan_at(3, 7))
    loop.run()
    assert (loop.state.position, loop.state.step) == (24, 22)
    letters = read_dead_letters(tmp_path / "dead_letters")
    assert [letter.position for letter in letters] == [3, 7]
    assert [list(letter.sample_ids) for letter in letters] == [
        loop.batches.global_indices(position).tolist() for position in (3, 7)
    ]
    assert "rolled_back" not in kinds(tmp_path)


def test_a_burst_rolls_back_to_the_snapshot_and_the_position_moves_on(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, faults=FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=6, count=6)))
    loop.run()
    data = event(tmp_path, "rolled_back").data
    assert (data["snapshot_position"], data["undone_steps"], data["refused_in_burst"], data["position"]) == (
        4,
        2,
        5,
        11,
    )
    assert loop.state.step == 24 - 6 - 2
    reasons = {letter.position: letter.reason for letter in read_dead_letters(tmp_path / "dead_letters")}
    assert {p for p, reason in reasons.items() if reason == "undone by a rollback"} == {4, 5}
    assert {p for p, reason in reasons.items() if reason == "loss is not finite"} == {6, 7, 8, 9, 10, 11}


def test_undone_steps_do_not_count_towards_the_next_checkpoint(tmp_path: Path) -> None:
    toy_loop(tmp_path, faults=FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=6, count=5))).run()
    data = event(tmp_path, "checkpoint_published").data
    assert (data["position"], data["step"]) == (15, 8)


def test_the_three_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    plan = LoopPlan(total_batches=24, seed=3, snapshot_every_steps=4, checkpoint_every_steps=4)
    loop = toy_loop(tmp_path, plan=plan)
    loop.run()
    there = [artifact.name for artifact in loop.checkpoints.store.listing()]
    assert there == [f"position-{position:012d}" for position in (16, 20, 24)]


def test_data_that_is_ill_throughout_stops_the_run_with_a_diagnosis(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, faults=FaultPlan(faults=burst(FaultKind.INF_GRADIENT, first=2, count=22)))
    with pytest.raises(TrainingError, match="going back does not help"):
        loop.run()
    progress = read_progress(tmp_path)
    assert progress is not None
    assert progress.phase is Phase.STOPPED
    assert kinds(tmp_path)[-1] == "run_stopped"


def test_too_many_refused_batches_stop_the_run_and_say_where_to_look(tmp_path: Path) -> None:
    plan = LoopPlan(total_batches=200, seed=3, snapshot_every_steps=50, checkpoint_every_steps=100)
    loop = toy_loop(tmp_path, plan=plan, faults=nan_at(*range(0, 200, 3)))
    with pytest.raises(DropRateError, match=r"34 bad of 100.*in 34 batches were refused.*stop_report\.txt"):
        loop.run()


def test_an_ill_state_is_never_published_and_the_older_checkpoint_stands(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path)
    die_at(loop, 9)
    with torch.no_grad():
        next(loop.state.model.parameters())[0, 0] = torch.inf
    assert not loop.checkpoints.publish(loop.state, {})
    assert event(tmp_path, "checkpoint_withheld").data["tensor"] == "model/0.weight"
    again = toy_loop(tmp_path)
    again.run()
    assert event(tmp_path, "restored").data["checkpoint"] == "position-000000000008"


def test_a_state_that_is_ill_before_the_first_step_stops_the_run_and_names_the_tensor(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path)
    loop.state.model.register_buffer("mask", torch.tensor(-torch.inf))
    with pytest.raises(TrainingError, match=r"model/mask is not finite before the first step"):
        loop.run()
    assert kinds(tmp_path)[-1] == "run_stopped"
    progress = read_progress(tmp_path)
    assert progress is not None
    assert progress.phase is Phase.STOPPED


def test_a_state_that_fell_ill_at_the_end_goes_back_before_it_is_published(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path)
    weight = next(loop.state.model.parameters())

    def fall_ill(*_: object) -> None:
        if loop.state.position == 22:
            weight.data.fill_(torch.inf)

    loop.guard.optimizer.register_step_post_hook(fall_ill)
    loop.run()
    assert (loop.state.position, loop.state.step) == (24, 20)
    assert event(tmp_path, "rolled_back").data["undone_steps"] == 3
    assert torch.isfinite(weight).all()


def test_a_truncated_checkpoint_goes_to_quarantine_and_the_one_before_is_used(tmp_path: Path) -> None:
    undisturbed = toy_loop(tmp_path / "undisturbed")
    undisturbed.run()
    die_at(toy_loop(tmp_path / "torn"), 20)
    newest = tmp_path / "torn" / "checkpoints" / "position-000000000016" / "state.safetensors"
    newest.write_bytes(b"")
    last = toy_loop(tmp_path / "torn")
    last.run()
    assert event(tmp_path / "torn", "checkpoint_quarantined").data["name"] == "position-000000000016"
    assert event(tmp_path / "torn", "restored").data["checkpoint"] == "position-000000000008"
    assert same(weights_of(last.state.model), weights_of(undisturbed.state.model))


def test_a_writer_killed_in_mid_write_leaves_nothing_that_a_resume_could_take(tmp_path: Path) -> None:
    die_at(toy_loop(tmp_path), 10)
    orphan = tmp_path / "checkpoints" / ".aside-position-000000000016-0123"
    orphan.mkdir()
    (orphan / "state.safetensors").write_bytes(b"half")
    toy_loop(tmp_path).run()
    assert not orphan.exists()
    assert event(tmp_path, "restored").data["checkpoint"] == "position-000000000008"


def test_a_checkpoint_of_another_model_is_refused_by_names_and_shapes(tmp_path: Path) -> None:
    die_at(toy_loop(tmp_path), 10)
    with pytest.raises(IncompatibleArtifactError, match=r"0\.weight is \(6, 4\), the model has \(5, 4\)"):
        toy_loop(tmp_path, hidden=5).run()


def test_a_checkpoint_of_another_run_is_refused_by_the_setting_that_differs(tmp_path: Path) -> None:
    die_at(toy_loop(tmp_path), 10)
    other = LoopPlan(total_batches=30, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8)
    with pytest.raises(IncompatibleArtifactError, match="total_batches was 24, now 30"):
        toy_loop(tmp_path, plan=other).run()


def test_a_finished_run_that_is_started_again_trains_nothing(tmp_path: Path) -> None:
    toy_loop(tmp_path).run()
    again = toy_loop(tmp_path)
    again.run()
    assert isinstance(again.task, ToyTask)
    assert again.task.seen == []


def test_a_worker_that_died_between_publishing_and_reporting_finds_its_checkpoint(tmp_path: Path) -> None:
    def publish_then_die(published: Path | None, _metrics: Mapping[str, float]) -> None:
        assert published is not None
        raise Death

    with pytest.raises(Death):
        toy_loop(tmp_path, deliver=publish_then_die).run()
    toy_loop(tmp_path).run()
    assert event(tmp_path, "restored").data["checkpoint"] == "position-000000000008"


def test_every_sample_is_seen_once_in_each_epoch_across_kills(tmp_path: Path) -> None:
    first, second = toy_loop(tmp_path), toy_loop(tmp_path)
    die_at(first, 13)
    second.run()
    assert isinstance(first.task, ToyTask)
    assert isinstance(second.task, ToyTask)
    kept = first.task.seen[: 8 * 8]  # up to the checkpoint at position 8; the rest of the first process is undone
    assert sorted(kept) == list(range(64))
    assert sorted(second.task.seen[:64]) == list(range(64))
    assert len(kept + second.task.seen) == 24 * 8
