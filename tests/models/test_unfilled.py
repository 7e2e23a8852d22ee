"""A network that is read from a file draws no weights first, and is the same one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from failsoft.models.narrow import load_network
from failsoft.models.network import NetworkConfig, build, save_weights
from failsoft.models.recipe import Shape
from failsoft.models.unfilled import build_unfilled

CONFIG = NetworkConfig(vocab_size=50, char_vocab_size=20, num_intents=3, num_tags=5, max_words=16, shape=Shape())


def test_a_network_that_was_read_has_the_weights_that_were_saved_and_nothing_was_drawn(tmp_path: Path) -> None:
    torch.manual_seed(1)
    saved = build(CONFIG)
    save_weights(saved, tmp_path / "weights")
    before = torch.get_rng_state()
    read = load_network(CONFIG, tmp_path / "weights")
    assert torch.equal(torch.get_rng_state(), before)
    assert not read.training
    weights = read.state_dict()
    assert weights.keys() == saved.state_dict().keys()
    for name, tensor in saved.state_dict().items():
        assert torch.equal(weights[name], tensor), name
    others = dict(saved.named_buffers())
    for name, buffer in read.named_buffers():
        assert torch.equal(buffer, others[name]), f"{name} is in no file"


def test_every_first_weight_of_a_network_that_is_trained_is_drawn_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread builds one at the same time."""
    torch.manual_seed(2)
    alone = build(CONFIG).state_dict()
    monkeypatch.setattr("failsoft.models.unfilled.build", lambda config: _beside(config, found))
    found: list[dict[str, torch.Tensor]] = []
    torch.manual_seed(2)
    build_unfilled(CONFIG)
    (beside,) = found
    assert all(torch.equal(beside[name], tensor) for name, tensor in alone.items())


def _beside(config: NetworkConfig, found: list[dict[str, torch.Tensor]]) -> object:
    thread = threading.Thread(target=lambda: found.append(build(config).state_dict()))
    thread.start()
    thread.join()
    return None
