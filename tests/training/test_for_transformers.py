from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

pytest.importorskip("transformers", reason="needs the extra: pip install 'failsoft[transformers]'")
pytest.importorskip("accelerate", reason="needs the extra: pip install 'failsoft[transformers]'")

from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

from failsoft.errors import ConfigError, DropRateError, TrainingError
from failsoft.health.ledger import read_ledger
from failsoft.health.monitor import HealthPolicy
from failsoft.training.breaker import BreakerPolicy
from failsoft.training.companion import GuardOptions
from failsoft.training.for_transformers import GuardedTrainer, GuardMixin
from failsoft.training.guard import GuardPolicy, Refusal
from failsoft.training.letters.deadletters import UNDONE, read_dead_letters
from failsoft.training.relief import ReliefPolicy
from failsoft.training.spikes import SpikePolicy
from tests.training.toys import same, weights_of

GOOD, NAN, INF_GRADIENT, SPIKE, NO_MEMORY, NO_MEMORY_LATER = range(6)
PER_BATCH = 4


class Texts(Dataset[dict[str, Tensor]]):
    """Tokens of batches by number, four samples each; ``kind`` says what is wrong with the batch."""

    def __init__(self, numbers: Iterable[int], bad: dict[int, int] | None = None) -> None:
        self._ids = [PER_BATCH * number + place for number in numbers for place in range(PER_BATCH)]
        self._bad = bad or {}

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        sample = self._ids[index]
        tokens = torch.randint(0, 30, (6,), generator=torch.Generator().manual_seed(sample))
        kind = self._bad.get(sample // PER_BATCH, GOOD)
        texts = {"input_ids": tokens, "labels": tokens.sum() % 2, "kind": torch.tensor(kind)}
        return texts | {"sample_ids": torch.tensor(sample)}


class Toy(nn.Module):
    """A tiny BERT with dropout, and a batch norm on its logits."""

    def __init__(self) -> None:
        super().__init__()
        sizes: dict[str, Any] = {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 16,
        }
        self.bert = BertForSequenceClassification(BertConfig(vocab_size=30, max_position_embeddings=8, **sizes))
        self.norm = nn.BatchNorm1d(2)

    def forward(self, input_ids: Tensor, labels: Tensor, kind: Tensor) -> dict[str, Tensor]:
        struck = int(kind[0])
        if struck == NO_MEMORY:
            no_memory()
        logits = self.bert(input_ids).logits
        if struck == NAN:
            logits = logits * torch.nan
        logits = self.norm(logits)
        if struck == INF_GRADIENT:
            logits.register_hook(lambda gradient: gradient * torch.inf)
        if struck == NO_MEMORY_LATER:
            logits.register_hook(no_memory)
        loss = nn.functional.cross_entropy(logits, labels)
        return {"loss": loss * 1e4 if struck == SPIKE else loss, "logits": logits}


def no_memory(*_given: object) -> None:
    raise torch.OutOfMemoryError("tried to allocate 1 GiB")


def fit(
    folder: Path,
    data: Texts,
    *,
    kind: Any = GuardedTrainer,
    options: GuardOptions | None = None,
    scaler: torch.amp.GradScaler | None = None,
    **more: Any,
) -> Any:
    """Train a toy; ``more`` are TrainingArguments, or ``model``, ``callbacks`` and ``resume`` (a checkpoint)."""
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model, callbacks, resume = more.pop("model", None) or Toy(), more.pop("callbacks", None), more.pop("resume", None)
    given: dict[str, Any] = {"num_train_epochs": 1, "logging_steps": 4, "save_strategy": "no"}
    args = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=PER_BATCH,
        learning_rate=0.01,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        train_sampling_strategy="sequential",
        **(given | more),
    )
    extra = {} if options is None else {"guard_options": options}
    trainer = kind(model=model, args=args, train_dataset=data, callbacks=callbacks, **extra)
    if scaler is not None:
        trainer.accelerator.scaler = scaler  # accelerate itself makes one for accelerators only
    trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    return trainer


def state_of(trainer: Any) -> dict[str, Any]:
    """All that must be as if the refused batches had never been."""
    optimizer = trainer.optimizer.state_dict()
    moments = {f"{i}/{name}": value for i, slot in optimizer["state"].items() for name, value in slot.items()}
    scheduler = trainer.lr_scheduler.state_dict()
    del scheduler["_last_lr"]  # runs of different lengths plan different slopes
    return {"tensors": weights_of(trainer.model) | moments, "scheduler": scheduler}


def assert_same_state(left: Any, right: Any) -> None:
    mine, other = state_of(left), state_of(right)
    assert same(mine.pop("tensors"), other.pop("tensors"))
    assert mine == other


CONSTANT: dict[str, Any] = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 20}


@pytest.mark.parametrize("kind", [NAN, INF_GRADIENT])
def test_a_refused_update_leaves_the_state_of_a_run_that_never_saw_the_batch(tmp_path: Path, kind: int) -> None:
    trainer = fit(tmp_path / "a", Texts(range(9), {4: kind}), **CONSTANT)
    never = fit(tmp_path / "b", Texts([n for n in range(9) if n != 4]), **CONSTANT)
    assert_same_state(trainer, never)
    assert (trainer.companion.position, trainer.companion.step, trainer.companion.refused) == (9, 8, 1)
    assert trainer.state.global_step == 9
    [letter] = read_dead_letters(tmp_path / "a/failsoft/dead_letters")
    assert (letter.position, letter.sample_ids) == (4, (16, 17, 18, 19))
    assert letter.reason == (Refusal.LOSS if kind == NAN else Refusal.GRADIENT)


def test_transformers_alone_ends_the_same_run_with_nan_weights_and_a_smooth_curve(tmp_path: Path) -> None:
    trainer = fit(tmp_path, Texts(range(9), {4: NAN}), kind=Plain)
    assert any(parameter.isnan().any() for parameter in trainer.model.parameters())
    assert all(math.isfinite(line["loss"]) for line in trainer.state.log_history if "loss" in line)


class Plain(Trainer):
    """The Trainer itself, with the ids taken out of its batches."""

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        inputs.pop("sample_ids")
        return super().training_step(model, inputs, num_items_in_batch)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        columns: Any = self._signature_columns
        if "sample_ids" not in columns:
            columns.append("sample_ids")


def test_a_run_without_bad_batches_is_bit_for_bit_the_trainer_s_own(tmp_path: Path) -> None:
    guarded = fit(tmp_path / "a", Texts(range(9)), max_grad_norm=0.0)
    alone = fit(tmp_path / "b", Texts(range(9)), kind=Plain, max_grad_norm=0.0)
    assert_same_state(guarded, alone)
    mine = [line["loss"] for line in guarded.state.log_history if "loss" in line]
    assert mine == [line["loss"] for line in alone.state.log_history if "loss" in line]


def test_a_clipped_run_differs_from_the_trainer_s_own_by_rounding_only(tmp_path: Path) -> None:
    guarded = fit(tmp_path / "a", Texts(range(9)), optim="sgd")
    alone = fit(tmp_path / "b", Texts(range(9)), optim="sgd", kind=Plain)
    assert guarded.state.log_history[0]["grad_norm"] > 1.0
    mine, other = weights_of(guarded.model), weights_of(alone.model)
    assert all(torch.allclose(mine[name], other[name], rtol=1e-5, atol=1e-6) for name in mine)


def test_one_bad_part_refuses_the_whole_accumulated_update(tmp_path: Path) -> None:
    trainer = fit(tmp_path / "a", Texts(range(12), {4: NAN}), gradient_accumulation_steps=3, **CONSTANT)
    numbers = [n for n in range(12) if n not in {3, 4, 5}]
    never = fit(tmp_path / "b", Texts(numbers), gradient_accumulation_steps=3, **CONSTANT)
    assert_same_state(trainer, never)
    [letter] = read_dead_letters(tmp_path / "a/failsoft/dead_letters")
    assert letter.sample_ids == tuple(range(12, 24))


def test_the_logged_loss_is_the_mean_over_applied_updates_and_refusals_are_counted(tmp_path: Path) -> None:
    trainer = fit(tmp_path / "a", Texts(range(8), {1: NAN, 5: NAN, 6: NAN, 7: NAN, 4: NAN}), **CONSTANT)
    never = fit(tmp_path / "b", Texts([0, 2, 3]), logging_steps=3, **CONSTANT)
    lines = [line for line in trainer.state.log_history if "loss" in line]
    assert [line["loss"] for line in lines] == [never.state.log_history[0]["loss"]]
    assert lines[0]["refused_batches"] == 1
    assert trainer.state.log_history[-1]["refused_batches"] == 5
    assert trainer.state.log_history[-1]["train_loss"] == pytest.approx(never.state.log_history[-1]["train_loss"])


def test_a_burst_goes_back_to_the_snapshot_and_names_what_was_undone(tmp_path: Path) -> None:
    options = GuardOptions(snapshot_every_steps=4)
    trainer = fit(tmp_path, Texts(range(14), dict.fromkeys(range(6, 11), NAN)), options=options, **CONSTANT)
    assert trainer.companion.breaker.rollbacks == 1
    assert trainer.companion.step == trainer.lr_scheduler.last_epoch == 4 + 3
    letters = read_dead_letters(tmp_path / "failsoft/dead_letters")
    assert {letter.position for letter in letters if letter.reason == UNDONE} == {4, 5}
    assert {letter.position for letter in letters if letter.refused} == set(range(6, 11))
    kinds = [event.kind for event in read_ledger(tmp_path / "failsoft/ledger.jsonl").events]
    assert kinds == ["run_started", *["batch_refused"] * 5, "rolled_back", "run_finished"]


@pytest.mark.parametrize("kind", [NAN, INF_GRADIENT, SPIKE])
def test_the_loss_scale_backs_off_once_down_to_its_floor_and_not_for_a_spike(tmp_path: Path, kind: int) -> None:
    policy = GuardPolicy(loss_spikes=SpikePolicy(window=4, warm_up=2), min_loss_scale=24.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    data = Texts(range(9), {4: kind, 6: kind})
    trainer = fit(tmp_path, data, options=GuardOptions(policy=policy), scaler=scaler)
    assert scaler.get_scale() == (64.0 if kind == SPIKE else 24.0)
    assert scaler.state_dict()["_growth_tracker"] == (7 if kind == SPIKE else 2)
    assert trainer.lr_scheduler.last_epoch == 7
    assert all(parameter.isfinite().all() for parameter in trainer.model.parameters())


def test_a_spike_is_refused_and_the_relief_leaves_the_schedule_as_it_was(tmp_path: Path) -> None:
    policy = GuardPolicy(loss_spikes=SpikePolicy(window=8, warm_up=4), relief=ReliefPolicy(recovery_steps=2))
    trainer = fit(tmp_path, Texts(range(8), {6: SPIKE}), options=GuardOptions(policy=policy), **CONSTANT)
    assert trainer.companion.refused == 1
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * 7 / 20)


def test_a_resumed_run_goes_on_with_the_counts_and_ends_as_the_uninterrupted_one(tmp_path: Path) -> None:
    data = Texts(range(12), {2: NAN, 8: NAN})
    whole = fit(tmp_path, data, save_strategy="steps", save_steps=6)
    again = fit(tmp_path / "again", data, save_strategy="steps", save_steps=6, resume=tmp_path / "checkpoint-6")
    assert (again.companion.position, again.companion.step, again.companion.refused) == (12, 10, 2)
    assert again.companion.breaker.state_dict() == whole.companion.breaker.state_dict()
    assert_same_state(again, whole)


def test_too_many_refusals_stop_the_run_with_a_diagnosis(tmp_path: Path) -> None:
    streak = HealthPolicy(window_size=10, min_samples=4, max_bad_fraction=0.2, max_consecutive_bad=5)
    options = GuardOptions(breaker=BreakerPolicy(streak=streak))
    with pytest.raises(DropRateError, match="dead_letters, and mend"):
        fit(tmp_path, Texts(range(30), dict.fromkeys(range(1, 30, 2), NAN)), options=options)


class Watching(TrainerCallback):
    def __init__(self, poison_at: int | None = None) -> None:
        self.steps, self._poison_at = 0, poison_at

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps += 1
        if state.global_step == self._poison_at:
            next(kwargs["model"].parameters()).data.fill_(torch.nan)


def test_a_checkpoint_of_ill_weights_is_written_from_the_last_healthy_snapshot(tmp_path: Path) -> None:
    watching, options = Watching(poison_at=6), GuardOptions(snapshot_every_steps=2)
    fit(tmp_path, Texts(range(8)), options=options, callbacks=[watching], save_strategy="steps", save_steps=6)
    again = fit(tmp_path / "again", Texts(range(8)), resume=tmp_path / "checkpoint-6", max_steps=7)
    assert (again.companion.position, again.companion.step) == (7, 5)
    assert watching.steps == 8


def test_weights_that_are_ill_before_the_first_step_are_named(tmp_path: Path) -> None:
    model = Toy()
    next(model.parameters()).data.fill_(torch.nan)
    with pytest.raises(TrainingError, match="is not finite before the first step"):
        fit(tmp_path, Texts(range(3)), model=model)


class Doubling(Trainer):
    def compute_loss(self, *args: Any, **more: Any) -> Any:
        loss: Any = super().compute_loss(*args, **more)
        return 2.0 * loss


class DoublingGuarded(GuardMixin, Doubling):
    """A trainer of one's own, guarded."""


def test_the_mixin_goes_before_a_trainer_of_one_s_own(tmp_path: Path) -> None:
    trainer = fit(tmp_path / "a", Texts(range(4), {2: NAN}), kind=DoublingGuarded, max_grad_norm=0.0)
    assert (trainer.companion.step, trainer.companion.refused) == (3, 1)
    usual = fit(tmp_path / "b", Texts(range(1)), max_grad_norm=0.0).state.log_history[-1]["train_loss"]
    first = fit(tmp_path / "c", Texts(range(1)), kind=DoublingGuarded, max_grad_norm=0.0)
    assert first.state.log_history[-1]["train_loss"] == pytest.approx(2.0 * usual)


def test_an_optimizer_that_steps_in_the_backward_pass_is_turned_away(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="steps inside the backward pass"):
        fit(tmp_path, Texts(range(3)), optim="lomo")
