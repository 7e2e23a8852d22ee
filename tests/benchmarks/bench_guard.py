"""The guarded step against the same loop unguarded, the loops most people write or use, and the guard most write.

Whole steps are noisy to a few percent on a shared machine, so the guard's own cost is also timed by itself: the whole
of ``StepGuard.step`` with everything taken out that a loop which clips does anyway (the passes, the norm, the kernels
of the optimizer; what is left of their calls is timed, too, and taken off).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.benchmarks.guard_pieces import NAIVE_OWN, OWN, PASSES, WITH_GUARD, pieces
from tests.benchmarks.guarded_loops import (
    LightningSteps,
    Size,
    Step,
    accelerate_step,
    batch_of,
    common_step,
    guarded_step,
    late_step,
    naive_step,
    network,
)
from tests.benchmarks.guarded_ranks import reduction_seconds
from tests.benchmarks.measuring import Contender, Ratio, Timings, interleave
from tests.benchmarks.outcome import Outcome

SIZES = (
    Size(name="0.2m", width=128, layers=12, rounds=60, batch=128),
    Size(name="5m", width=512, layers=19, rounds=31),
    Size(name="30m", width=1024, layers=28, rounds=15),
)
HASTY = Size(name="0.2m_batch_32", width=128, layers=12, rounds=60)
"""A step of less than a millisecond, where the guard's few microseconds of Python show most."""
COMMON, NAIVE, OURS = "common loop", "common loop, naive guard", "failsoft guard, fused"
FUSED, LATE = "fused, unguarded", "failsoft late guard, fused"
PARTED, OURS_PARTED = "fused, unguarded, 4 micro-batches", "failsoft guard, fused, 4 micro-batches"
ACCELERATE, LIGHTNING, UNFUSED = "Accelerate", "Lightning", "failsoft guard, default AdamW"
MAKERS: dict[str, Callable[[torch.nn.Module, Tensor], Step]] = {
    COMMON: common_step,
    NAIVE: naive_step,
    FUSED: lambda model, batch: common_step(model, batch, fused=True),
    OURS: guarded_step,
    UNFUSED: lambda model, batch: guarded_step(model, batch, fused=False),
    LATE: late_step,
    PARTED: lambda model, batch: common_step(model, batch, fused=True, parts=4),
    OURS_PARTED: lambda model, batch: guarded_step(model, batch, parts=4),
    ACCELERATE: accelerate_step,
}
WHOLE = {
    "guarded_over_common_loop": (OURS, COMMON),
    "guarded_over_unguarded_fused": (OURS, FUSED),
    "guarded_over_unguarded_default": (UNFUSED, COMMON),
    "late_guarded_over_unguarded_fused": (LATE, FUSED),
    "guarded_over_unguarded_accumulating": (OURS_PARTED, PARTED),
    "guarded_over_lightning": (OURS, LIGHTNING),
    "guarded_over_accelerate": (OURS, ACCELERATE),
    "naive_guarded_over_common_loop": (NAIVE, COMMON),
}

WORST = {"guard_cost_over_step": max, "with_guard_by_pieces": max, "naive_guard_cost_over_ours": min}


def measure(*, quick: bool) -> Outcome:
    """All sizes; the stated ratios take the worst of them."""
    torch.set_num_threads(1)
    outcome = Outcome(name="guard")
    sizes = SIZES[:1] if quick else SIZES
    for size in sizes:
        rounds = 3 if quick else size.rounds
        steps = whole_steps(outcome, size, rounds)
        for name, (over, under) in WHOLE.items():
            outcome.ratios[f"{name}_{size.name}"] = steps.ratio(over, under)
        _own_cost(outcome, size, rounds)
    for name, worst in WORST.items():
        outcome.ratios[name] = worst((outcome.ratios[f"{name}_{size.name}"] for size in sizes), key=_value)
    _own_cost(outcome, HASTY, 3 if quick else HASTY.rounds)
    _ranks(outcome, quick=quick)
    outcome.notes += NOTES
    return outcome


NOTES = (
    "ratios that end in no size are the worst over the three sizes (batches of 128, 32, 32); 0.2m_batch_32 stands "
    "beside them; all but verdict_of_2_ranks_… (2 processes on "
    "this machine) are of one process with one thread",
    "guard_cost_over_step: everything in a guarded step (state of the generator, both readings, verdict, outcome, what "
    "follows an update) but the passes, the norm and its list of gradients, and the update, over forward and backward",
    "with_guard_by_pieces: forward and backward, and what a guarded step takes beyond one with clip_grad_norm_ (both "
    "without kernels), over forward and backward; below 1 is possible, since the guard lists the gradients faster",
    "nothing is set against the guard's cost for the pass over the gradients that it saves: it clips within the fused "
    "kernel, or not at all when the norm is small",
    "Lightning is its own Trainer.fit in a thread, let go some steps at a time; loggers, checkpoints and bars are off",
    "accumulating: 4 micro-batches instead of one batch, on both sides",
)


def _own_cost(outcome: Outcome, size: Size, rounds: int) -> None:
    own = pieces(size, rounds)
    outcome.add(f"guard's own cost, {size.name}", own)
    outcome.ratios[f"guard_cost_over_step_{size.name}"] = own.ratio(OWN, PASSES)
    outcome.ratios[f"with_guard_by_pieces_{size.name}"] = own.ratio(WITH_GUARD, PASSES)
    outcome.ratios[f"naive_guard_cost_over_ours_{size.name}"] = own.ratio(NAIVE_OWN, OWN)


def _value(ratio: Ratio) -> float:
    return ratio.value


def whole_steps(outcome: Outcome, size: Size, rounds: int) -> Timings:
    """Whole steps of every loop, in turns; checked to have trained alike."""
    batch = batch_of(size)
    models = {name: network(size) for name in MAKERS}
    steps = {name: make(models[name], batch) for name, make in MAKERS.items()}
    with LightningSteps(network(size), batch, size.calls) as lightning_steps:
        contenders = [Contender(name=name, run=_repeated(step, size.calls)) for name, step in steps.items()]
        contenders.append(Contender(name=LIGHTNING, run=lightning_steps))
        together = interleave(contenders, rounds=rounds, control=NAIVE)
    timings = Timings(seconds={name: [s / size.calls for s in series] for name, series in together.seconds.items()})
    outcome.add(f"whole step, {size.name}", timings)
    _check_alike(models[FUSED], models[OURS])
    _check_alike(models[COMMON], models[ACCELERATE])
    return timings


def _repeated(step: Step, calls: int) -> Step:
    def steps() -> None:
        for _ in range(calls):
            step()

    return steps


def _check_alike(plain: torch.nn.Module, guarded: torch.nn.Module) -> None:
    """Both took equally many steps on the same batch, so one that skipped or damaged a step would show."""
    for left, right in zip(plain.parameters(), guarded.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-2, atol=1e-3)


def _ranks(outcome: Outcome, *, quick: bool) -> None:
    """What several ranks pay for one verdict."""
    timings = reduction_seconds(rounds=20 if quick else 200)
    outcome.add("2 ranks, gloo", timings)
    outcome.ratios["verdict_of_2_ranks_over_reduction_of_5m_gradients"] = timings.ratio(
        "one verdict (2 numbers)", "gradients of 5 M parameters"
    )
