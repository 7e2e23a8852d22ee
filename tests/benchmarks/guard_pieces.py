"""The guard's own cost: its whole step, with the kernels taken out of it and out of what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn
from torch.nn.utils import clip_grad, clip_grad_norm_

from failsoft.training import gradients as guarded_gradients
from failsoft.training.guard import StepGuard
from tests.benchmarks.guarded_loops import (
    MAX_NORM,
    Size,
    Step,
    adamw,
    batch_of,
    gradients,
    holds_nan_or_inf,
    loss_of,
    network,
)
from tests.benchmarks.measuring import CONTROL, Contender, Timings, interleave, quartiles

PASSES = "forward and backward"
OWN = "the guard's own cost"
WITH_GUARD = "forward and backward, and what the guard adds to clip_grad_norm_"
NAIVE_OWN = "the naive guard's own cost"
_GUARDED = "guarded step, no kernels"
_REST = "the calls that any step has"
_CLIPPING = "step with clip_grad_norm_, no kernels"


def pieces(size: Size, rounds: int) -> Timings:
    """Timings of both guards and of the passes, by the names above; the control is ``OWN``."""
    model, batch = network(size), batch_of(size)

    def passes() -> None:
        model.zero_grad()
        loss_of(model, batch).backward()

    passes()
    kept, loss = gradients(model), loss_of(model, batch).detach().requires_grad_()
    with _without_kernels(model, loss) as steps:
        contenders = [Contender(name=name, run=step, calls=300) for name, step in steps.items()]
        contenders.append(Contender(name=NAIVE_OWN, run=lambda: holds_nan_or_inf([loss, *kept]), calls=3))
        contenders.append(Contender(name=PASSES, run=passes, calls=size.calls))
        timed = interleave(contenders, rounds=rounds, control=_GUARDED).seconds
    again = timed.pop(_GUARDED + CONTROL)
    own, added = _beyond(timed[_GUARDED], timed[_REST]), _beyond(timed[_GUARDED], timed[_CLIPPING])
    with_guard = [passes_s + added_s for passes_s, added_s in zip(timed[PASSES], added, strict=True)]
    return Timings(seconds=timed | {OWN: own, WITH_GUARD: with_guard, OWN + CONTROL: _beyond(again, timed[_REST])})


def _beyond(whole_s: list[float], part_s: list[float]) -> list[float]:
    """Less the part in a good round: a hiccup in the part must not make the rest look cheap."""
    good_s, _ = quartiles(part_s)
    return [one_s - good_s for one_s in whole_s]


@contextmanager
def _without_kernels(model: nn.Module, loss: Tensor) -> Iterator[dict[str, Step]]:
    """Steps whose passes, norm, clipping and update do nothing; everything else in them is as it is."""
    guard = StepGuard(model=model, optimizer=adamw(model, fused=True))
    optimizer = guard.optimizer
    norm = guard.gradients.total_norm().clamp(max=MAX_NORM / 2)  # nothing to clip, as in most steps

    def nothing(*_args: object, **_more: object) -> None:
        """Stands in for kernels."""

    def compute() -> Tensor:
        return loss

    def rest() -> None:
        optimizer.zero_grad()
        compute().backward()
        guard.gradients.tensors()
        optimizer.step()

    def clipping() -> None:
        optimizer.zero_grad()
        compute().backward()
        clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()

    with ExitStack() as stack:
        for owner, name, stand_in in (
            (guarded_gradients, "get_total_norm", lambda _gradients: norm),
            (clip_grad, "_get_total_norm", lambda *_args: norm),
            (clip_grad, "_clip_grads_with_norm_", nothing),
            (optimizer, "step", nothing),
            (optimizer, "zero_grad", nothing),
            (loss, "backward", nothing),
        ):
            stack.enter_context(_replaced(owner, name, stand_in))
        yield {_GUARDED: lambda: guard.step(compute), _REST: rest, _CLIPPING: clipping}


@contextmanager
def _replaced(owner: object, name: str, stand_in: Callable[..., object]) -> Iterator[None]:
    real = getattr(owner, name)
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        setattr(owner, name, real)
