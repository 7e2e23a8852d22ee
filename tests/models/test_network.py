"""The network: padding and company change nothing, and it learns."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from failsoft.errors import ConfigError, IncompatibleArtifactError
from failsoft.models.encoding import EncodedSplit, encode_corpus
from failsoft.models.learning import joint_loss, loss_of, make_optimizer, schedule, to_tensors
from failsoft.models.network import (
    IntentNer,
    NetworkConfig,
    Scores,
    autocast_dtype,
    build,
    load_weights,
    network_config,
    save_weights,
)
from failsoft.models.recipe import RECIPES, Shape, recipe_for, recipe_named
from tests.models.toys import RECIPE, toy_corpus, toy_predictor


def toy_split() -> EncodedSplit:
    predictor = toy_predictor()
    return encode_corpus(toy_corpus().test, predictor.codec, predictor.labels)


def scores_of(model: IntentNer, split: EncodedSplit, indices: list[int]) -> Scores:
    with torch.inference_mode():
        scores: Scores = model(to_tensors(split.take(np.array(indices))))
    return scores


def test_a_text_scores_the_same_alone_and_beside_a_longer_one() -> None:
    model, split = toy_predictor().model, toy_split()
    short, long = int(split.lengths.argmin()), int(split.lengths.argmax())
    alone, together = scores_of(model, split, [short]), scores_of(model, split, [long, short])
    length = int(split.lengths[short])
    torch.testing.assert_close(alone.intent_logits_BC[0], together.intent_logits_BC[1], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(alone.slot_logits_BTS[0], together.slot_logits_BTS[1, :length], atol=1e-5, rtol=1e-4)


def test_a_neighbour_in_the_batch_is_never_read() -> None:
    model, split = toy_predictor().model, toy_split()
    first, second = scores_of(model, split, [0, 1]), scores_of(model, split, [0, 2])
    torch.testing.assert_close(first.intent_logits_BC[0], second.intent_logits_BC[0], atol=1e-5, rtol=1e-4)


def test_the_same_seed_builds_and_computes_the_same_bits() -> None:
    split, config = toy_split(), toy_predictor().model.config
    losses = []
    for _ in range(2):
        torch.manual_seed(3)
        model = build(config).train()
        loss = loss_of(model, to_tensors(split.take(np.arange(8))), RECIPE)
        loss.backward()
        losses.append((loss.item(), *(p.grad.sum().item() for p in model.parameters() if p.grad is not None)))
    assert losses[0] == losses[1]


def test_every_weight_gets_a_gradient() -> None:
    """A weight that no loss reaches would hang data-parallel training."""
    model = build(toy_predictor().model.config).train()
    loss_of(model, to_tensors(toy_split().take(np.arange(8))), RECIPE).backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_trains_in_half_precision_as_on_a_gpu(dtype: torch.dtype) -> None:
    model, batch = build(toy_predictor().model.config).train(), to_tensors(toy_split().take(np.arange(8)))
    with torch.autocast("cpu", dtype=dtype):
        loss = loss_of(model, batch, RECIPE)
    loss.backward()
    assert loss.dtype == torch.float32
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_the_loss_is_torchs_own_where_there_is_no_doubt() -> None:
    split = toy_split()
    batch = to_tensors(split.take(np.arange(4)))
    scores = toy_predictor().model(batch)
    intents_only = dataclasses.replace(RECIPE, slot_weight=1e-9)
    expected = torch.nn.functional.cross_entropy(
        scores.intent_logits_BC, batch["intent"], label_smoothing=RECIPE.label_smoothing
    )
    torch.testing.assert_close(joint_loss(scores, batch, intents_only), expected)


def test_full_doubt_asks_for_an_even_answer() -> None:
    batch = to_tensors(toy_split().take(np.arange(4))) | {"doubt": torch.ones(4)}
    even = Scores(torch.zeros(4, 10), torch.zeros(*batch["tags"].shape, 3))
    sure = Scores(torch.nn.functional.one_hot(batch["intent"], 10) * 9.0, even.slot_logits_BTS)
    batch["tags"] = batch["tags"].clamp(max=0)
    assert joint_loss(even, batch, RECIPE) < joint_loss(sure, batch, RECIPE)


def test_the_rate_rises_then_falls_to_a_hundredth() -> None:
    optimizer = make_optimizer(build(toy_predictor().model.config), RECIPE)
    rates = schedule(optimizer, RECIPE, 100)
    seen = []
    for _ in range(100):
        seen.append(rates.get_last_lr()[0])
        optimizer.step()
        rates.step()
    assert max(seen) == pytest.approx(RECIPE.learning_rate)
    assert seen.index(max(seen)) == 9
    assert seen[-1] < 0.02 * RECIPE.learning_rate


def test_only_matrices_decay() -> None:
    model = build(toy_predictor().model.config)
    decays, stays = make_optimizer(model, RECIPE).param_groups
    assert decays["weight_decay"] == RECIPE.weight_decay
    assert stays["weight_decay"] == 0.0
    assert any(weight is model.words.weight for weight in stays["params"])
    assert len(decays["params"]) + len(stays["params"]) == len(list(model.parameters()))


def test_saved_weights_come_back_bit_by_bit(tmp_path: Path) -> None:
    model = toy_predictor().model
    save_weights(model, tmp_path / "weights.safetensors")
    other = build(model.config)
    load_weights(other, tmp_path / "weights.safetensors")
    pairs = zip(model.state_dict().values(), other.state_dict().values(), strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)


def test_weights_of_another_network_are_refused_and_change_nothing(tmp_path: Path) -> None:
    config = toy_predictor().model.config
    save_weights(build(dataclasses.replace(config, num_intents=3)), tmp_path / "w")
    model = build(config)
    before = model.words.weight.clone()
    with pytest.raises(IncompatibleArtifactError, match=r"intent.* has shape"):
        load_weights(model, tmp_path / "w")
    assert torch.equal(before, model.words.weight)
    deeper = dataclasses.replace(config, shape=dataclasses.replace(config.shape, layers=2))
    with pytest.raises(IncompatibleArtifactError, match=r"blocks\.1"):
        load_weights(build(deeper), tmp_path / "w")


@pytest.mark.parametrize("damage", [b"", b"not tensors", b"\xff" * 64])
def test_a_file_that_holds_no_tensors_is_refused(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "w").write_bytes(damage)
    with pytest.raises(IncompatibleArtifactError, match="holds no weights"):
        load_weights(toy_predictor().model, tmp_path / "w")


def test_a_config_file_comes_back_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    config = toy_predictor().model.config
    config.save(tmp_path / "network.json")
    assert NetworkConfig.load(tmp_path / "network.json") == config
    (tmp_path / "network.json").write_text('{"shape": {"width": 7, "heads": 2}}', "utf-8")
    with pytest.raises((IncompatibleArtifactError, ConfigError)):
        NetworkConfig.load(tmp_path / "network.json")


def test_a_cpu_trains_in_full_precision() -> None:
    assert autocast_dtype(torch.device("cpu")) is None


@pytest.mark.cuda
def test_a_gpu_trains_in_half_precision() -> None:
    assert autocast_dtype(torch.device("cuda")) in (torch.bfloat16, torch.float16)


def test_recipes_are_found_by_name_and_corpus() -> None:
    assert set(RECIPES) == {"demo", "embedded", "snips"}
    assert recipe_for("embedded").name == "demo"
    assert recipe_for("clinc150").name == "snips"
    assert recipe_named("snips").total_steps(130) == RECIPES["snips"].epochs * 3
    with pytest.raises(ConfigError, match="use one of demo, embedded, snips"):
        recipe_named("large")


@pytest.mark.parametrize("change", [{"epochs": 0}, {"learning_rate": float("nan")}, {"label_smoothing": 1.0}])
def test_impossible_recipes_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        dataclasses.replace(RECIPE, **change)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="multiple of the heads"):
        Shape(width=30, heads=4)


def test_the_shape_of_a_recipe_is_the_shape_of_its_network() -> None:
    predictor = toy_predictor()
    config = network_config(RECIPE, predictor.codec, predictor.labels)
    assert config == predictor.model.config
