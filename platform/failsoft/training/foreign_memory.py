"""A batch that does not fit into memory, in somebody else's trainer: it is left out, and the run goes on.

The memory ladder needs the passes, which are the trainer's own, so nothing is tried in smaller pieces here. One process
alone frees what the passes held, refuses the update as any other, and writes its dead letter; batches that do not fit
again and again lead to the way back and then to a stop, as other refusals do. Of several ranks one can't do so: the
others are in the middle of a reduction by then. There the error goes up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from failsoft.training.guard import Refusal, StepGuard, StepOutcome
from failsoft.training.memory.oom import Trouble, free_caches, let_go, trouble_of


def to_leave_out(error: BaseException, guard: StepGuard) -> Trouble | None:
    """What ran out, where this process may leave the batch out; None: the error must go up."""
    return None if guard.ranks.world > 1 else trouble_of(error, rank=guard.ranks.rank)


def give_back(error: BaseException, guard: StepGuard) -> None:
    """Let go of all that the passes held; after the handler of the error, which holds it itself."""
    let_go(error)
    guard.optimizer.zero_grad(set_to_none=True)
    free_caches()


def left_out(trouble: Trouble, sample_ids: Sequence[int], *, position: int) -> StepOutcome:
    """The outcome of an update of which at least one part did not fit."""
    refusal, nan = Refusal.OUT_OF_MEMORY, math.nan
    outcome = StepOutcome(position, tuple(sample_ids), trouble.rank, refusal, nan, nan, nan)
    return outcome._replace(why=trouble.in_words())


def refuse(outcome: StepOutcome, guard: StepGuard) -> None:
    """As the guard does; but one that did not fit says nothing of the loss scale, nor of the learning rate."""
    if outcome.refusal is Refusal.OUT_OF_MEMORY:
        guard.go_back()
        guard.on_refused(outcome)
    else:
        guard.refuse(outcome)
