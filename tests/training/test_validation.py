from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from failsoft.errors import ConfigError, PreemptedError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.accounting.degraded import degraded
from failsoft.training.checkpoints.retention import Best, Last, Shelved, removable
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import SoloRank
from failsoft.training.survival.agreement import NoticedRanks
from failsoft.training.survival.notice import Notice, Word
from failsoft.training.validation import MARK, ValidationPlan, Validator
from failsoft.training.validation_look import Share, combined, look
from tests.training.toys import same, toy_data, toy_loop, toy_model, weights_of

Looks = Callable[[nn.Module, NDArray[np.int64]], Mapping[str, float]]
OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def mse(model: nn.Module, indices: NDArray[np.int64]) -> Mapping[str, float]:
    inputs, targets = toy_data()
    rows = torch.from_numpy(indices)
    return {"val_loss": nn.functional.mse_loss(model(inputs[rows]), targets[rows]).item()}


@dataclass
class Judged:
    """A task to be judged by ``looks``, which notes how many samples it was given at a time."""

    looks: Looks = mse
    validation_samples: int = 20
    sizes: list[int] = field(default_factory=list)

    def validate(self, model: nn.Module, indices: NDArray[np.int64]) -> Mapping[str, float]:
        self.sizes.append(len(indices))
        return self.looks(model, indices)


def broken(_model: nn.Module, _indices: NDArray[np.int64]) -> Mapping[str, float]:
    raise OUT_OF_MEMORY


def fits(limit: int) -> Looks:
    def looks(model: nn.Module, indices: NDArray[np.int64]) -> Mapping[str, float]:
        if len(indices) > limit:
            raise OUT_OF_MEMORY
        return mse(model, indices)

    return looks


def rude(model: nn.Module, _indices: NDArray[np.int64]) -> Mapping[str, float]:
    """Leaves everything as it should not be, and then fails."""
    model.train()
    model(torch.full((8, 4), torch.nan))
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002 -- what careless code does
    model.requires_grad_(False)
    model.zero_grad(set_to_none=True)
    torch.set_grad_enabled(False)
    raise RuntimeError("no such file: val.txt")


def validated(
    folder: Path,
    task: Judged,
    plan: ValidationPlan | None = None,
    *,
    total: int = 24,
    ranks: NoticedRanks | None = None,
) -> TrainLoop:
    course = LoopPlan(total_batches=total, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8)
    loop = toy_loop(folder, plan=course, ranks=ranks)
    loop.told = loop.told if ranks is None else ranks.told
    loop.validation = Validator(
        task,
        loop.state,
        loop.guard.ranks,
        loop.desk,
        plan or ValidationPlan(every_steps=4, batch=8),
        batches_per_epoch=loop.batches.batches_per_epoch,
    )
    return loop


def told(folder: Path, kind: str) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == kind]


def metrics_of(loop: TrainLoop) -> dict[int, dict[str, Any]]:
    shelf = loop.checkpoints.store.listing()
    return {int(one.manifest.meta["position"]): dict(one.manifest.meta["metrics"]) for one in shelf}


def test_a_look_is_broken_off_when_its_rank_is_told_to_leave_and_what_there_is_is_saved(tmp_path: Path) -> None:
    notice = Notice()

    def hears(model: nn.Module, indices: NDArray[np.int64]) -> Mapping[str, float]:
        notice.give(Word(why="SIGTERM to process 7"))
        return mse(model, indices)

    task = Judged(hears)
    loop = validated(tmp_path, task, ranks=NoticedRanks(SoloRank(), notice))
    with pytest.raises(PreemptedError, match="goes on from batch 4"):
        loop.run()
    assert task.sizes == [8]  # of 20 samples
    (event,) = told(tmp_path, "validation_broken_off")
    assert event.data["position"] == 4
    assert metrics_of(loop)[4].keys() == {"loss", "position", "step"}
    again = validated(tmp_path, Judged())
    again.run()
    assert (again.state.position, told(tmp_path, "validation_failed")) == (24, [])


@pytest.mark.parametrize("looks", [mse, broken, rude, fits(2)])
def test_a_run_that_is_validated_is_the_run_that_is_not_to_the_bit(tmp_path: Path, looks: Looks) -> None:
    plain = toy_loop(tmp_path / "plain")
    plain.run()
    loop = validated(tmp_path / "validated", Judged(looks))
    loop.run()
    assert torch.is_grad_enabled()
    assert same(weights_of(plain.state.model), weights_of(loop.state.model))
    digests = [
        [one.manifest.files["state.safetensors"].digest for one in each.checkpoints.store.listing()]
        for each in (plain, loop)
    ]
    assert digests[0] == digests[1]


def test_each_module_gets_its_own_mode_back_and_gradients_stay(tmp_path: Path) -> None:
    model = toy_model()
    assert isinstance(model, nn.Sequential)
    model[1].eval()
    model(torch.ones(8, 4)).mean().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    share = look(Judged(rude), model, np.arange(8), batch=8, halvings=0)
    assert (share.given_up, share.why) == (True, "RuntimeError: no such file: val.txt")
    assert [module.training for module in model] == [True, False, True, True, True]
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(a is b.grad for a, b in zip(gradients, model.parameters(), strict=True))
    assert all(bool(torch.isfinite(buffer).all()) for buffer in model.buffers())


def test_a_look_that_runs_out_of_memory_is_tried_at_half_the_batch_and_half_of_that() -> None:
    task = Judged(fits(2))
    share = look(task, toy_model(), np.arange(20), batch=8, halvings=2)
    assert task.sizes == [8, 4, *[2] * 10]
    assert (share.failures, share.given_up, share.batch) == (2, False, 2)
    whole = look(Judged(), toy_model(), np.arange(20), batch=20, halvings=0)
    assert share.sums == pytest.approx(whole.sums, rel=1e-6)


@pytest.mark.parametrize(("batch", "halvings", "tries"), [(8, 2, [8, 4, 2]), (8, 0, [8]), (2, 9, [2, 1]), (1, 9, [1])])
def test_a_look_is_given_up_when_no_half_works(batch: int, halvings: int, tries: list[int]) -> None:
    task = Judged(broken)
    share = look(task, toy_model(), np.arange(20), batch=batch, halvings=halvings)
    assert task.sizes == tries
    assert (share.given_up, share.sums) == (True, {})


def test_a_metric_that_failed_for_some_samples_or_is_not_finite_is_absent_and_the_others_stay() -> None:
    def looks(_model: nn.Module, indices: NDArray[np.int64]) -> Mapping[str, float]:
        odd = {"sometimes": 1.0} if 3 in indices else {}
        return {"nan": float("nan") if 5 in indices else 0.0, "inf": float("inf"), "fine": float(indices.mean())} | odd

    share = look(Judged(looks), toy_model(), np.arange(20), batch=8, halvings=0)
    found, absent = combined([share])
    assert found == {"fine": pytest.approx(9.5)}
    assert absent == ["inf", "nan", "sometimes"]


def test_means_are_over_samples_and_a_metric_counts_only_when_every_rank_has_it() -> None:
    full = Share(samples=30, batch=8, sums={"loss": 30.0, "accuracy": 15.0})
    part = Share(samples=10, batch=8, sums={"loss": 20.0}, absent=["accuracy"])
    assert combined([full, part]) == ({"loss": 50.0 / 40}, ["accuracy"])
    idle, failed = Share(samples=0, batch=1), Share(samples=10, batch=2, failures=3, why="x", given_up=True)
    assert combined([full, idle])[0] == {"loss": 1.0, "accuracy": 0.5}
    assert combined([full, failed]) == ({}, ["accuracy", "loss"])
    assert combined([idle]) == ({}, [])


def test_a_look_is_in_the_ledger_and_judges_the_checkpoint_of_its_moment_alone(tmp_path: Path) -> None:
    loop = validated(tmp_path, Judged(), ValidationPlan(every_steps=12), total=24)
    loop.run()
    events = told(tmp_path, "validated")
    assert [event.data["step"] for event in events] == [12, 24]
    assert events[0].data["samples"] == 20
    assert [sorted(metrics) for metrics in metrics_of(loop).values()] == [
        ["loss", "position", "step"],  # of batch 8; and of batch 16, which is not the one that was looked at
        ["loss", "position", "step"],
        ["loss", "position", "step", "val_loss"],
    ]


def test_a_checkpoint_without_the_metric_is_never_the_best_one() -> None:
    shelf = [
        Shelved(name="a", position=1, at_s=1.0, metrics={"val_loss": 0.9}),
        Shelved(name="b", position=2, at_s=2.0, metrics={}),
        Shelved(name="c", position=3, at_s=3.0, metrics={"val_loss": float("nan")}),
        Shelved(name="d", position=4, at_s=4.0, metrics={}),
    ]
    assert removable(shelf, [Best(metric="val_loss"), Last(count=1)]) == ["b", "c"]
    assert removable(shelf, [Best(metric="val_loss", larger_is_better=True), Last(count=1)]) == ["b", "c"]


def test_looks_that_fail_in_a_row_rest_and_are_tried_again_after_the_rest(tmp_path: Path) -> None:
    task = Judged(broken)
    loop = validated(tmp_path, task, ValidationPlan(every_steps=1, batch=1), total=24)
    loop.told = lambda: heal(task, loop) if loop.state.step == 12 else None
    loop.run()
    failed = [event.data["step"] for event in told(tmp_path, "validation_failed")]
    assert failed == [1, 2, 3]
    assert [event.data["step"] for event in told(tmp_path, "validated")] == list(range(13, 25))
    (rest,) = told(tmp_path, "degradation_began")
    assert (rest.data["name"], rest.data["step"]) == ("validation", 3)
    part = degraded(read_ledger(tmp_path / "ledger.jsonl").events).kinds["callback_rests"]
    assert (part.batches, part.open) == (10, False)


def heal(task: Judged, loop: TrainLoop) -> None:
    task.looks = mse
    advanced(loop, 3600.0)


def test_a_look_that_took_its_worker_down_rests_after_the_restart_and_longer_each_time(tmp_path: Path) -> None:
    def dies(_model: nn.Module, _indices: NDArray[np.int64]) -> Mapping[str, float]:
        raise SystemExit(124)  # what the watchdog's end looks like from inside of a test

    plan = ValidationPlan(every_steps=4, after_death=BackoffPolicy(first_s=100.0, factor=3.0, cap_s=1e6))
    with pytest.raises(SystemExit):
        validated(tmp_path, Judged(dies), plan).run()
    assert (tmp_path / MARK).read_text("utf-8") == "1"
    again = Judged(dies)
    loop = validated(tmp_path, again, plan)
    loop.told = lambda: advanced(loop, 8.0)
    with pytest.raises(SystemExit):
        loop.run()
    assert (loop.state.step, again.sizes) == (20, [20])  # 4 to 16 were within the rest of 100 s
    (rest,) = told(tmp_path, "degradation_began")
    assert "did not come back (1 in a row)" in rest.why
    assert (tmp_path / MARK).read_text("utf-8") == "2"


def advanced(loop: TrainLoop, by_s: float) -> None:
    clock = loop.desk.clock
    assert isinstance(clock, ManualClock)
    clock.advance(by_s)


def test_a_look_that_comes_back_leaves_no_mark(tmp_path: Path) -> None:
    validated(tmp_path, Judged()).run()
    assert not (tmp_path / MARK).exists()


def test_looks_at_the_end_of_each_epoch_come_once_for_each(tmp_path: Path) -> None:
    validated(tmp_path, Judged(), ValidationPlan(at_epoch_end=True)).run()
    assert [event.data["position"] for event in told(tmp_path, "validated")] == [8, 16, 24]


def test_what_a_rank_found_travels_as_json() -> None:
    share = look(Judged(fits(2)), toy_model(), np.arange(5), batch=4, halvings=2)
    assert Share(**json.loads(json.dumps(vars(share)))) == share


@pytest.mark.parametrize("wrong", [{"every_steps": 0}, {"batch": 0}, {"halvings": -1}])
def test_an_impossible_plan_names_the_field(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ValidationPlan(**wrong)  # type: ignore[arg-type]  # numbers all


def test_a_model_in_shards_is_refused(tmp_path: Path) -> None:
    class Sharded(nn.Parameter):
        def full_tensor(self) -> torch.Tensor:
            return self

    loop = toy_loop(tmp_path)
    loop.state.model.register_parameter("sharded", Sharded(torch.ones(1)))
    with pytest.raises(ConfigError, match="shards on several ranks"):
        Validator(Judged(), loop.state, loop.guard.ranks, loop.desk, ValidationPlan(every_steps=1), batches_per_epoch=8)


def test_a_validation_without_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="validation_samples is 0"):
        validated(tmp_path, Judged(validation_samples=0))
