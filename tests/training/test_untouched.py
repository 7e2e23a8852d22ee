from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from failsoft.training.untouched import untouched


def half(model: nn.Module) -> None:
    model.half()


def swapped(model: nn.Module) -> None:
    """Averaged weights take the places of the others, and the way back is never reached."""
    for parameter in model.parameters():
        parameter.data = torch.zeros_like(parameter)


def replaced(model: nn.Module) -> None:
    for module in model.modules():
        for name in list(module._parameters):
            setattr(module, name, nn.Parameter(torch.zeros(1)))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("careless", [half, swapped, replaced])
def test_weights_that_a_look_casts_or_swaps_are_the_runs_own_again_although_it_failed(
    careless: Callable[[nn.Module], None], sparse: bool
) -> None:
    model = nn.Sequential(nn.Embedding(5, 3, sparse=sparse), nn.Linear(3, 1))
    model(torch.tensor([1, 2])).sum().backward()
    parameters = list(model.parameters())
    before = [(one.detach().clone(), one.grad) for one in parameters]
    with pytest.raises(ArithmeticError):
        _failed_look(model, careless)
    assert all(now is then for now, then in zip(model.parameters(), parameters, strict=True))
    for parameter, (weights, grad) in zip(parameters, before, strict=True):
        assert torch.equal(parameter, weights)
        assert parameter.grad is grad
        assert torch.as_tensor(grad).dtype == weights.dtype


def _failed_look(model: nn.Module, careless: Callable[[nn.Module], None]) -> None:
    with untouched(model):
        careless(model)
        raise ArithmeticError
