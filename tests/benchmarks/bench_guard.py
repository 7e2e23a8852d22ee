"""The guarded step against the same loop unguarded, the loop most people write, and the guard most people write.

Whole steps are noisy to a few percent on a shared machine, so the guards' own cost is also timed by its pieces: what a
guard adds to a loop that clips gradients anyway, over forward and backward of the same model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, get_total_norm
from torch.optim import AdamW

from failsoft.training.guard import StepGuard
from tests.benchmarks.measuring import Contender, Timings, interleave
from tests.benchmarks.outcome import Outcome

BATCH, MAX_NORM = 32, 1.0
COMMON, NAIVE, FUSED, OURS = "common loop", "common loop, naive guard", "fused, unguarded", "failsoft guard"


@dataclass(frozen=True, kw_only=True)
class Size:
    """One model to step."""

    name: str
    width: int
    layers: int
    rounds: int


SIZES = (
    Size(name="0.2m", width=128, layers=12, rounds=60),
    Size(name="5m", width=512, layers=19, rounds=25),
    Size(name="30m", width=1024, layers=28, rounds=9),
)


def measure(*, quick: bool) -> Outcome:
    """All sizes; the stated ratios take the worst of them."""
    torch.set_num_threads(1)
    outcome = Outcome(name="guard")
    own: list[str] = []
    for size in SIZES[:1] if quick else SIZES:
        rounds = 3 if quick else size.rounds
        steps = _whole_steps(outcome, size, rounds)
        outcome.ratios[f"guarded_over_common_loop_{size.name}"] = steps.ratio(OURS, COMMON)
        outcome.ratios[f"guarded_over_unguarded_fused_{size.name}"] = steps.ratio(OURS, FUSED)
        outcome.ratios[f"naive_guarded_over_common_loop_{size.name}"] = steps.ratio(NAIVE, COMMON)
        pieces = _pieces(outcome, size, rounds)
        outcome.ratios[f"guard_cost_over_step_{size.name}"] = pieces.ratio("guard", "forward and backward")
        outcome.ratios[f"naive_guard_cost_over_ours_{size.name}"] = pieces.ratio("naive guard", "guard")
        own.append(size.name)
    for name, pick in (("guard_cost_over_step", max), ("naive_guard_cost_over_ours", min)):
        outcome.ratios[name] = pick((outcome.ratios[f"{name}_{size}"] for size in own), key=lambda ratio: ratio.value)
    outcome.notes.append(
        "guard_cost_over_step and naive_guard_cost_over_ours are the worst over the sizes; pieces are timed on "
        "the same gradients; the total norm, which clipping computes anyway, is in neither guard's cost"
    )
    return outcome


def network(size: Size) -> nn.Module:
    """A stack of linear layers with the same weights each time."""
    torch.manual_seed(7)
    layers = [part for _ in range(size.layers) for part in (nn.Linear(size.width, size.width), nn.GELU())]
    return nn.Sequential(*layers)


def gradients(model: nn.Module) -> list[Tensor]:
    """Every gradient there is."""
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def holds_nan_or_inf(tensors: Sequence[Tensor]) -> bool:
    """The guard most people write: ask each tensor."""
    return any(bool(torch.isnan(tensor).any() or torch.isinf(tensor).any()) for tensor in tensors)


def _loss(model: nn.Module, batch: Tensor) -> Tensor:
    return torch.as_tensor(model(batch)).square().mean()


def _batch(size: Size) -> Tensor:
    return torch.randn(BATCH, size.width, generator=torch.Generator().manual_seed(3))


def _whole_steps(outcome: Outcome, size: Size, rounds: int) -> Timings:
    batch, models = _batch(size), {name: network(size) for name in (COMMON, NAIVE, FUSED, OURS)}
    steps = {
        COMMON: _common_step(models[COMMON], batch),
        NAIVE: _common_step(models[NAIVE], batch, check=holds_nan_or_inf),
        FUSED: _common_step(models[FUSED], batch, fused=True),
        OURS: _guarded_step(models[OURS], batch),
    }
    calls = 5 if size.width < 256 else 1
    contenders = [Contender(name=name, run=step, calls=calls) for name, step in steps.items()]
    timings = interleave(contenders, rounds=rounds, control=NAIVE)
    outcome.add(f"whole step, {size.name}", timings)
    _check_alike(models[FUSED], models[OURS])
    return timings


def _common_step(
    model: nn.Module, batch: Tensor, *, fused: bool = False, check: Callable[[Sequence[Tensor]], bool] | None = None
) -> Callable[[], object]:
    optimizer = AdamW(model.parameters(), lr=1e-4, fused=fused)

    def step() -> None:
        optimizer.zero_grad()
        loss = _loss(model, batch)
        loss.backward()
        if check is not None and (check([loss.detach()]) or check(gradients(model))):
            return
        clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()

    return step


def _guarded_step(model: nn.Module, batch: Tensor) -> Callable[[], object]:
    guard = StepGuard(model=model, optimizer=AdamW(model.parameters(), lr=1e-4, fused=True))
    return lambda: guard.step(lambda: _loss(model, batch))


def _check_alike(plain: nn.Module, guarded: nn.Module) -> None:
    """Both took equally many steps on the same batch, so a guard that skipped or damaged one would show."""
    for left, right in zip(plain.parameters(), guarded.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-4)


def _pieces(outcome: Outcome, size: Size, rounds: int) -> Timings:
    """What each guard adds, on gradients that are there."""
    model, batch = network(size), _batch(size)
    guard = StepGuard(model=model, optimizer=AdamW(model.parameters(), lr=1e-4, fused=True))

    def forward_and_backward() -> None:
        model.zero_grad()
        _loss(model, batch).backward()

    forward_and_backward()
    loss, kept = _loss(model, batch).detach(), gradients(model)
    norm = get_total_norm(kept)
    contenders = [
        Contender(name="guard", run=lambda: (guard.begin(), guard.examine(loss)), calls=200),
        Contender(name="naive guard", run=lambda: holds_nan_or_inf([loss, *kept]), calls=5),
        Contender(name="forward and backward", run=forward_and_backward, calls=1),
    ]
    timings = interleave(contenders, rounds=rounds, control="naive guard")
    outcome.add(f"guard's own cost, {size.name}", timings)
    return timings
