from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

pytest.importorskip("lightning", reason="needs the extra: pip install 'failsoft[lightning]'")

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.precision import MixedPrecision

from failsoft.errors import ConfigError, DropRateError, TrainingError
from failsoft.health.faults import FaultKind
from failsoft.health.ledger import read_ledger
from failsoft.health.monitor import HealthPolicy
from failsoft.training.breaker import BreakerPolicy
from failsoft.training.faulty import strike_loss
from failsoft.training.for_lightning import GuardCallback
from failsoft.training.guard import GuardPolicy, Refusal
from failsoft.training.letters.deadletters import UNDONE, read_dead_letters
from failsoft.training.relief import ReliefPolicy
from failsoft.training.spikes import SpikePolicy
from tests.training.toys import same, toy_model, weights_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),  # eight samples need no workers
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.:FutureWarning"),  # Lightning calls torch so
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before:UserWarning"),  # on purpose
]

GOOD, NAN, INF_GRADIENT, SPIKE = range(4)


class Batches(Dataset[dict[str, Tensor]]):
    """Whole batches by number; a bad one is of the kind that is said."""

    def __init__(self, numbers: Iterable[int], bad: dict[int, int] | None = None) -> None:
        self._numbers, self._bad = list(numbers), bad or {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        number = self._numbers[index]
        kind = self._bad.get(number, GOOD)
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(number))
        targets = inputs.sum(1, keepdim=True) + (100.0 if kind == SPIKE else 0.0)
        if kind == NAN:
            inputs[3, 1] = torch.nan
        ids = torch.arange(8) + 8 * number
        return {"inputs": inputs, "targets": targets, "kind": torch.tensor(kind), "sample_ids": ids}


class Toy(LightningModule):
    def __init__(self, *, fused: bool = False) -> None:
        super().__init__()
        self.model = toy_model()
        self.fused = fused
        self.step_rates: list[float] = []

    def training_step(self, batch: dict[str, Tensor]) -> Tensor:
        loss = nn.functional.mse_loss(self.model(batch["inputs"]), batch["targets"])
        struck = [FaultKind.INF_GRADIENT] if int(batch["kind"]) == INF_GRADIENT else []
        return strike_loss(loss, struck, self.model)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01, fused=self.fused)
        optimizer.register_step_pre_hook(lambda opt, _a, _k: self.step_rates.append(opt.param_groups[0]["lr"]))
        by_step = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=20)
        by_epoch = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        return [optimizer], [{"scheduler": by_step, "interval": "step"}, {"scheduler": by_epoch, "interval": "epoch"}]


class Listener(Callback):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_rest: Any) -> None:
        self.heard.append("ill" if any(not t.isfinite().all() for t in weights_of(pl_module).values()) else "well")


def fit(
    folder: Path, data: Batches, *callbacks: Callback, module: Toy | None = None, ckpt: Path | None = None, **more: Any
) -> tuple[Toy, Trainer]:
    torch.manual_seed(11)
    torch.set_num_threads(1)
    module = module or Toy()
    trainer = Trainer(
        accelerator="cpu",
        default_root_dir=folder,
        callbacks=list(callbacks),
        **({"max_epochs": 1, "gradient_clip_val": 1.0} | more),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    torch.manual_seed(12)
    trainer.fit(module, DataLoader(data, batch_size=None), ckpt_path=ckpt, weights_only=False)
    return module, trainer


def state_of(trainer: Trainer) -> dict[str, Any]:
    """All that must be as if the refused batches had never been."""
    optimizer = trainer.optimizers[0].state_dict()
    moments = {f"{i}/{name}": value for i, slot in optimizer["state"].items() for name, value in slot.items()}
    assert isinstance(trainer.model, nn.Module)
    scheduler = trainer.lr_scheduler_configs[0].scheduler.state_dict()
    return {"tensors": weights_of(trainer.model) | moments, "groups": optimizer["param_groups"], "scheduler": scheduler}


def assert_same_state(left: Trainer, right: Trainer) -> None:
    mine, other = state_of(left), state_of(right)
    assert same(mine.pop("tensors"), other.pop("tensors"))
    assert mine == other


@pytest.mark.parametrize("kind", [NAN, INF_GRADIENT])
@pytest.mark.parametrize(("precision", "clip"), [("32-true", "norm"), ("32-true", "value"), ("bf16-mixed", "norm")])
def test_a_refused_update_leaves_the_state_of_a_run_that_never_saw_the_batch(
    tmp_path: Path, kind: int, precision: str, clip: str
) -> None:
    guard, how = GuardCallback(), {"precision": precision, "gradient_clip_algorithm": clip}
    _module, trainer = fit(tmp_path / "a", Batches(range(9), {4: kind}), guard, **how)  # type: ignore[arg-type]
    numbers = [n for n in range(9) if n != 4]
    _module, never = fit(tmp_path / "b", Batches(numbers), GuardCallback(), **how)  # type: ignore[arg-type]
    assert_same_state(trainer, never)
    assert (guard.companion.position, guard.companion.step, guard.companion.refused) == (9, 8, 1)
    assert trainer.global_step == 9
    [letter] = read_dead_letters(tmp_path / "a/failsoft/dead_letters")
    assert (letter.position, letter.sample_ids) == (4, tuple(range(32, 40)))
    assert letter.reason == (Refusal.LOSS if kind == NAN else Refusal.GRADIENT)


def test_lightning_alone_ends_the_same_run_with_nan_weights(tmp_path: Path) -> None:
    module, _trainer = fit(tmp_path, Batches(range(9), {4: NAN}))
    assert all(parameter.isnan().any() for parameter in module.parameters())


def test_a_run_without_bad_batches_is_bit_for_bit_lightning_s_own(tmp_path: Path) -> None:
    _module, guarded = fit(tmp_path / "a", Batches(range(9)), GuardCallback())
    _module, alone = fit(tmp_path / "b", Batches(range(9)))
    assert_same_state(guarded, alone)


def test_one_bad_part_refuses_the_whole_accumulated_update(tmp_path: Path) -> None:
    guard = GuardCallback()
    _module, trainer = fit(tmp_path / "a", Batches(range(12), {4: NAN}), guard, accumulate_grad_batches=3)
    numbers = [n for n in range(12) if n not in {3, 4, 5}]
    _module, never = fit(tmp_path / "b", Batches(numbers), GuardCallback(), accumulate_grad_batches=3)
    assert_same_state(trainer, never)
    assert (guard.companion.position, guard.companion.step) == (4, 3)
    [letter] = read_dead_letters(tmp_path / "a/failsoft/dead_letters")
    assert letter.sample_ids == tuple(range(24, 48))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", [NAN, INF_GRADIENT, SPIKE])
def test_the_loss_scale_backs_off_once_down_to_its_floor_and_not_for_a_spike(
    tmp_path: Path, kind: int, *, fused: bool
) -> None:
    policy = GuardPolicy(loss_spikes=SpikePolicy(window=4, warm_up=2), min_loss_scale=24.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    _module, trainer = fit(
        tmp_path / "a",
        Batches(range(9), {4: kind, 6: kind}),
        GuardCallback(policy=policy),
        module=Toy(fused=fused),
        plugins=[MixedPrecision("16-mixed", "cpu", scaler)],
        gradient_clip_val=None,
    )
    assert scaler.get_scale() == (64.0 if kind == SPIKE else 24.0)
    assert scaler.state_dict()["_growth_tracker"] == (7 if kind == SPIKE else 2)
    assert all(parameter.isfinite().all() for parameter in _module.parameters())
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == 7


def test_a_burst_goes_back_to_the_snapshot_and_names_what_was_undone(tmp_path: Path) -> None:
    guard = GuardCallback(snapshot_every_steps=4)
    bad = dict.fromkeys(range(6, 11), NAN)
    _module, trainer = fit(tmp_path / "a", Batches(range(14), bad), guard, module=Toy())
    assert guard.companion.breaker.rollbacks == 1
    assert guard.companion.step == 4 + 3
    letters = read_dead_letters(tmp_path / "a/failsoft/dead_letters")
    assert {letter.position for letter in letters if letter.reason == UNDONE} == {4, 5}
    assert {letter.position for letter in letters if letter.refused} == set(range(6, 11))
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == 7
    kinds = [event.kind for event in read_ledger(tmp_path / "a/failsoft/ledger.jsonl").events]
    assert kinds == ["run_started", *["batch_refused"] * 5, "rolled_back", "run_finished"]


def test_a_spike_is_refused_and_the_relief_lowers_the_rate_of_the_next_updates_only(tmp_path: Path) -> None:
    policy = GuardPolicy(loss_spikes=SpikePolicy(window=8, warm_up=4), relief=ReliefPolicy(recovery_steps=2))
    guard = GuardCallback(policy=policy)
    module, trainer = fit(tmp_path, Batches(range(9), {5: SPIKE}), guard)
    assert guard.companion.refused == 1
    factors = [rate / (0.01 * (1 - 0.9 * step / 20)) for step, rate in enumerate(module.step_rates)]
    assert factors == pytest.approx([1, 1, 1, 1, 1, 0.5, 0.75, 1])
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == 8


class SaveEpochs(Callback):
    """Saves at the end of each epoch; seeds for each batch, since Lightning does not restore torch's generators."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        torch.manual_seed(20 + 100 * trainer.current_epoch + batch_idx)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.save_checkpoint(Path(trainer.default_root_dir) / f"{trainer.current_epoch}.ckpt")


def test_a_resumed_run_goes_on_with_the_counts_and_ends_as_the_uninterrupted_one(tmp_path: Path) -> None:
    data, first, again = Batches(range(6), {2: NAN}), GuardCallback(), GuardCallback()
    _module, whole = fit(tmp_path / "a", data, first, SaveEpochs(), max_epochs=2)
    _module, resumed = fit(tmp_path / "b", data, again, SaveEpochs(), ckpt=tmp_path / "a/0.ckpt", max_epochs=2)
    assert (again.companion.position, again.companion.step, again.companion.refused) == (12, 10, 2)
    assert again.companion.breaker.state_dict() == first.companion.breaker.state_dict()
    assert_same_state(resumed, whole)


def test_too_many_refusals_stop_the_run_with_a_diagnosis(tmp_path: Path) -> None:
    streak = HealthPolicy(window_size=10, min_samples=4, max_bad_fraction=0.2, max_consecutive_bad=5)
    guard = GuardCallback(breaker=BreakerPolicy(streak=streak))
    with pytest.raises(DropRateError, match="dead_letters, and mend"):
        fit(tmp_path, Batches(range(30), dict.fromkeys(range(1, 30, 2), NAN)), guard)
    assert guard.companion.position < 30


def test_a_run_that_must_go_on_for_min_steps_is_stopped_all_the_same(tmp_path: Path) -> None:
    guard = GuardCallback()
    with pytest.raises(TrainingError, match="going back does not help"):
        fit(tmp_path, Batches(range(40), dict.fromkeys(range(40), NAN)), guard, min_epochs=1)
    assert guard.companion.position == 15
    [*_rest, slower] = [e for e in read_ledger(tmp_path / "failsoft/ledger.jsonl").events if e.kind == "rolled_back"]
    assert slower.data["remedy"] == "snapshot_slower"


def test_a_checkpoint_of_ill_weights_is_written_from_the_last_healthy_snapshot(tmp_path: Path) -> None:
    class Poison(Callback):
        def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *rest: Any) -> None:
            if rest[-1] == 5:
                next(pl_module.parameters()).data.fill_(torch.nan)
                trainer.save_checkpoint(tmp_path / "ill.ckpt")

    guard = GuardCallback(snapshot_every_steps=2)
    fit(tmp_path, Batches(range(8)), Poison(), guard)
    saved = torch.load(tmp_path / "ill.ckpt", weights_only=False)
    assert all(tensor.isfinite().all() for tensor in saved["state_dict"].values())
    [counts] = [state for key, state in saved["callbacks"].items() if "GuardCallback" in key]
    assert counts["step"] == 4
    assert saved["optimizer_states"][0]["state"][0]["step"] == 4
    assert saved["lr_schedulers"][0]["last_epoch"] == 4


def test_other_callbacks_still_run_and_never_meet_an_ill_buffer(tmp_path: Path) -> None:
    before, after = Listener(), Listener()
    fit(tmp_path, Batches(range(6), {2: NAN}), before, GuardCallback(), after)
    assert before.heard == after.heard == ["well"] * 6


def test_lightning_has_its_methods_back_after_the_run(tmp_path: Path) -> None:
    module, trainer = fit(tmp_path, Batches(range(3)), GuardCallback())
    assert "lr_scheduler_step" not in module.__dict__
    assert "failsoft" not in repr(trainer.optimizers[0].step.__code__)


def test_weights_that_are_ill_before_the_first_step_are_named(tmp_path: Path) -> None:
    module = Toy()
    next(module.parameters()).data.fill_(torch.nan)
    with pytest.raises(TrainingError, match=r"0\.weight is not finite before the first step"):
        fit(tmp_path, Batches(range(3)), GuardCallback(), module=module)


def test_manual_optimization_is_turned_away_with_a_sentence(tmp_path: Path) -> None:
    class ByHand(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

    with pytest.raises(ConfigError, match="ByHand optimizes by hand"):
        fit(tmp_path, Batches(range(3)), GuardCallback(), module=ByHand(), gradient_clip_val=None)


def test_lbfgs_is_turned_away_with_a_sentence(tmp_path: Path) -> None:
    class Closing(Toy):
        def configure_optimizers(self) -> Any:
            return torch.optim.LBFGS(self.parameters())

    with pytest.raises(ConfigError, match="LBFGS"):
        fit(tmp_path, Batches(range(3)), GuardCallback(), module=Closing())


def test_an_autocast_type_belongs_to_the_trainer() -> None:
    with pytest.raises(ConfigError, match="the trainer's own precision"):
        GuardCallback(policy=GuardPolicy(autocast_dtype=torch.bfloat16))
