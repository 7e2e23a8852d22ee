from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.training.letters.blame import MAX_NAMED, blame
from failsoft.training.letters.diagnosis import Seen
from failsoft.training.letters.trials import Limits, Share, Trials, verdict


class Samples:
    """One number for each sample; counts how often it is asked."""

    def __init__(self, count: int, **bad: float) -> None:
        self.values = torch.ones(count)
        for name, value in bad.items():
            self.values[int(name.removeprefix("at_"))] = value
        self.asked = 0

    def loss(self, model: nn.Module, indices: NDArray[np.int64]) -> Tensor:
        self.asked += 1
        return torch.as_tensor((model(torch.ones(1, 1)).sum() * 0 + 1) * self.values[torch.from_numpy(indices)].mean())


def model() -> nn.Module:
    return nn.Linear(1, 1)


def test_two_bad_samples_of_a_thousand_are_found_in_few_tries() -> None:
    samples = Samples(1000, at_17=torch.nan, at_900=torch.inf)
    found = blame(Trials(loss=samples.loss), model(), np.arange(1000))
    assert (found.samples, found.complete) == ((17, 900), True)
    assert samples.asked < 50


def test_a_spike_is_found_alone_though_it_drowns_in_the_mean() -> None:
    samples = Samples(64, at_5=40.0)
    found = blame(Trials(loss=samples.loss), model(), np.arange(64), limits=Limits(loss=3.0))
    assert found.samples == (5,)


def test_a_batch_that_is_fine_in_its_parts_blames_nobody() -> None:
    found = blame(Trials(loss=Samples(8).loss), model(), np.arange(8))
    assert (found.samples, found.complete) == ((), True)


def test_what_could_not_be_tried_alone_is_not_called_fine() -> None:
    def loss(model: nn.Module, indices: NDArray[np.int64]) -> Tensor:
        raise ValueError("expected more than 1 value per channel")

    found = blame(Trials(loss=loss), model(), np.arange(2))
    assert (found.samples, found.complete) == ((), False)
    assert "more than 1 value" in found.why


def test_a_batch_that_is_bad_throughout_names_some_and_says_that_it_stopped() -> None:
    samples = Samples(1000)
    samples.values[:] = torch.nan
    found = blame(Trials(loss=samples.loss), model(), np.arange(1000))
    assert found.samples == tuple(range(MAX_NAMED))
    assert not found.complete
    assert "stopped after" in found.why


def test_the_model_trains_on_as_before() -> None:
    net = model().train()
    blame(Trials(loss=Samples(8, at_1=torch.nan).loss), net, np.arange(8))
    assert net.training
    assert all(parameter.grad is None for parameter in net.parameters())


def test_code_that_cannot_run_gives_an_unknown_with_its_words() -> None:
    def loss(model: nn.Module, indices: NDArray[np.int64]) -> Tensor:
        raise RuntimeError("no kernel for Double")

    trial = Trials(loss=loss).run("x", model(), [Share(indices=np.arange(2))])
    assert (trial.seen, trial.loss) == (Seen.UNKNOWN, None)
    assert "no kernel for Double" in trial.why


@pytest.mark.parametrize(
    ("loss", "norm", "bad_tensor", "said"),
    [
        (1.0, 1.0, None, ""),
        (float("nan"), 1.0, None, "loss is not finite"),
        (1.0, float("inf"), "w", "gradient is not finite"),
        (1.0, float("inf"), None, "gradient is finite, but its norm overflows"),
        (6.0, 1.0, None, "loss 6 is above 5"),
        (1.0, 60.0, None, "gradient norm 60 is above 50"),
        (5.0, 50.0, None, ""),
    ],
)
def test_numbers_are_judged_as_the_guard_judges_them(
    loss: float, norm: float, bad_tensor: str | None, said: str
) -> None:
    assert verdict(loss, norm, bad_tensor, Limits(loss=5.0, grad_norm=50.0)) == said
