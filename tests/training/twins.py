"""Two runs of the same toy: one meets bad batches, its twin never sees them. Nothing may tell them apart afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import (
    ASGD,
    SGD,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
    Rprop,
)
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from failsoft.training.guard import GuardPolicy, Refusal, StepGuard, StepOutcome
from failsoft.training.ranks import Ranks, SoloRank
from failsoft.training.spikes import SpikePolicy

ROWS, BATCH = 64, 8
WARM_UP = 2
"""Good steps before the first spike is known as one; plans start with so many."""
WATCHED = SpikePolicy(window=4, warm_up=WARM_UP, deviations=10.0, min_relative_spread=3.0)
FLOOR = 256.0
"""Loss scale at the start and at least: a scale that backed off is the one trace that is wanted."""

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": lambda p: SGD(p, lr=0.1),
    "sgd fused": lambda p: SGD(p, lr=0.1, fused=True),
    "sgd momentum": lambda p: SGD(p, lr=0.1, momentum=0.9),
    "sgd momentum foreach": lambda p: SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "sgd momentum fused": lambda p: SGD(p, lr=0.1, momentum=0.9, fused=True),
    "sgd nesterov": lambda p: SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd dampening": lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
    "sgd dampening fused": lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.3, fused=True),
    "adam": lambda p: Adam(p, lr=0.01),
    "adam amsgrad fused": lambda p: Adam(p, lr=0.01, amsgrad=True, fused=True),
    "adamw": lambda p: AdamW(p, lr=0.01),
    "adamw foreach": lambda p: AdamW(p, lr=0.01, foreach=True),
    "adamw fused": lambda p: AdamW(p, lr=0.01, fused=True),
    "adamw capturable rate": lambda p: AdamW(p, lr=torch.tensor(0.01), fused=True),
    "adagrad": lambda p: Adagrad(p, lr=0.1),
    "adagrad fused": lambda p: Adagrad(p, lr=0.1, fused=True),
    "rmsprop": lambda p: RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adadelta": Adadelta,
    "adafactor": Adafactor,
    "adamax": Adamax,
    "asgd": ASGD,
    "nadam": NAdam,
    "radam": RAdam,
    "rprop": Rprop,
}


class Bad(StrEnum):
    """What is wrong with a batch."""

    NAN_LOSS = "nan loss"
    NAN_INPUT = "nan input"
    INF_GRADIENT = "inf gradient"
    OVERFLOW = "overflowing norm"
    LOSS_SPIKE = "loss spike"
    GRADIENT_SPIKE = "gradient spike"


REFUSALS: Mapping[Bad, Refusal] = {
    Bad.NAN_LOSS: Refusal.LOSS,
    Bad.NAN_INPUT: Refusal.LOSS,
    Bad.INF_GRADIENT: Refusal.GRADIENT,
    Bad.OVERFLOW: Refusal.OVERFLOW,
    Bad.LOSS_SPIKE: Refusal.LOSS_SPIKE,
    Bad.GRADIENT_SPIKE: Refusal.GRADIENT_SPIKE,
}


class Slope(torch.autograd.Function):
    """Nothing in the loss, ``slope`` in every entry of a gradient."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor, slope: float) -> Tensor:
        """A zero that depends on the parameter."""
        ctx.shape, ctx.slope = parameter, slope
        return parameter.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        """The slope, scaled as the loss is."""
        return torch.full_like(ctx.shape, ctx.slope) * grad_outputs[0], None


def struck(loss: Tensor, bad: Bad | None, model: nn.Module) -> Tensor:
    """The loss, with what is wrong with it."""
    slopes = {Bad.INF_GRADIENT: torch.inf, Bad.OVERFLOW: 1e30, Bad.GRADIENT_SPIKE: 1e6}
    if bad is Bad.NAN_LOSS:
        return loss * torch.nan
    if bad is Bad.LOSS_SPIKE:
        return loss + 1e4
    return loss if bad not in slopes else loss + Slope.apply(next(model.parameters()), slopes[bad])


def network() -> nn.Module:
    """Buffers by the batch norm, chance by the dropout; the same weights each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 1))


def rows(number: int) -> tuple[Tensor, Tensor]:
    """Batch ``number``."""
    inputs = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(5))
    picked = inputs[torch.arange(number * BATCH, (number + 1) * BATCH) % ROWS]
    return picked, picked.sum(1, keepdim=True)


@dataclass(kw_only=True)
class Run:
    """A toy in training."""

    guard: StepGuard
    sizes: Sequence[int] = (BATCH,)
    """Micro-batches: their samples."""
    outcomes: list[StepOutcome] = field(default_factory=list)

    def step(self, number: int, bad: Bad | None = None) -> StepOutcome:
        """One update from batch ``number``."""
        computes = self.computes(number, bad)
        shares = None if len(self.sizes) == 1 else [size / BATCH for size in self.sizes]
        outcome = self.guard.step(computes if shares else computes[0], shares=shares, position=number)
        self.outcomes.append(outcome)
        return outcome

    def computes(self, number: int, bad: Bad | None = None) -> list[Callable[[], Tensor]]:
        """Forward passes of the micro-batches; what is wrong is wrong with one of them."""
        inputs, targets = (part.split(list(self.sizes)) for part in rows(number))
        struck_one = number % len(self.sizes)
        kinds = [bad if part == struck_one else None for part in range(len(self.sizes))]
        return [self._compute(*part) for part in zip(inputs, targets, kinds, strict=True)]

    def everything(self) -> dict[str, Any]:
        """All that a step may change, copied; the EMA's buffers and torch's generator included."""
        guard = self.guard
        return {
            "model": clone(guard.model.state_dict()),
            "optimizer": clone(guard.optimizer.state_dict()),
            "scheduler": None if guard.scheduler is None else clone(guard.scheduler.state_dict()),
            "scale": None if guard.scaler is None else guard.scaler.get_scale(),
            "ema": None if guard.ema is None else clone(guard.ema.state_dict()),
            "guard": clone(guard.state_dict()),
            "generator": torch.get_rng_state(),
        }

    def _compute(self, inputs: Tensor, targets: Tensor, bad: Bad | None) -> Callable[[], Tensor]:
        model = self.guard.model
        fed = inputs * torch.nan if bad is Bad.NAN_INPUT else inputs
        return lambda: struck(nn.functional.mse_loss(model(fed), targets), bad, model)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to make a run; each call of :meth:`make` gives an equal one."""

    optimizer: MakeOptimizer = OPTIMIZERS["adamw"]
    sizes: Sequence[int] = (BATCH,)
    scaled: bool = False
    autocast: torch.dtype | None = None
    scheduler: Callable[[Optimizer], LRScheduler] | None = None
    model: Callable[[], nn.Module] = network
    wrap: Callable[[nn.Module], nn.Module] = lambda model: model
    max_grad_norm: float | None = 1.0

    def make(self, ranks: Ranks | None = None) -> Run:
        """A run at its start, with an EMA and both watches for spikes; chance starts anew."""
        bare = self.model()
        optimizer = self.optimizer([parameter for parameter in bare.parameters() if parameter.requires_grad])
        policy = GuardPolicy(
            max_grad_norm=self.max_grad_norm,
            min_loss_scale=FLOOR,
            autocast_dtype=self.autocast,
            loss_spikes=WATCHED,
            norm_spikes=WATCHED,
        )
        guard = StepGuard(
            model=self.wrap(bare),
            optimizer=optimizer,
            scheduler=None if self.scheduler is None else self.scheduler(optimizer),
            scaler=GradScaler("cpu", init_scale=FLOOR, growth_interval=10_000) if self.scaled else None,
            ema=AveragedModel(bare, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=False),
            policy=policy,
            ranks=ranks or SoloRank(),
        )
        torch.manual_seed(2)
        return Run(guard=guard, sizes=self.sizes)


def clone(state: Any) -> Any:
    """A deep copy of a state dict's values."""
    if isinstance(state, Tensor):
        return state.detach().clone()
    if isinstance(state, Mapping):
        return {str(name): clone(value) for name, value in state.items()}
    return [clone(value) for value in state] if isinstance(state, list | tuple) else state


def difference(left: Any, right: Any, path: str = "") -> str | None:
    """Where two states differ, bit for bit; None when nowhere."""
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        alike = left.dtype == right.dtype and torch.equal(left, right)
        return None if alike else f"{path}: {left} is not {right}"
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        if left.keys() != right.keys():
            return f"{path}: {sorted(left)} are not {sorted(right)}"
        return next(filter(None, (difference(left[key], right[key], f"{path}/{key}") for key in left)), None)
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = enumerate(zip(left, right, strict=True))
        return next(filter(None, (difference(*pair, f"{path}/{index}") for index, pair in pairs)), None)
    return None if type(left) is type(right) and left == right else f"{path}: {left!r} is not {right!r}"


def told_apart(recipe: Recipe, plan: Sequence[Bad | None]) -> str | None:
    """Run a plan twice, the second time without its bad batches; where the ends differ.

    Raises:
        AssertionError: a step was refused, or not, or for another reason than planned.
    """
    met = recipe.make()
    for number, bad in enumerate(plan):
        outcome = met.step(number, bad)
        assert outcome.refusal is (None if bad is None else REFUSALS[bad]), (number, bad, outcome)
    after = met.everything()
    spared = recipe.make()
    for number, bad in enumerate(plan):
        if bad is None:
            assert spared.step(number).applied
    return difference(after, spared.everything())
