"""A look at the model on samples that it does not learn from, which may fail without harm to the run.

Each rank looks at its share of the validation samples, through the bare model and without any collective, so that a
rank that fails, or has to try again in smaller batches, keeps nobody waiting for more than that time. Then all ranks
tell each other what they found. A batch that fails (out of memory, a bug, a bad sample) is tried again at half the
size, and again at half of that; then this look is given up. A metric counts only when every sample of every rank went
into it and it is finite: otherwise it is absent, never 0 and never NaN, and nothing is *best* by it.

After some failures in a row the looks rest, with growing patience. One that takes its worker down (a hang that the
watchdog ends, a crash of the driver of a device) is remembered by a file in the run's folder, and rests after the
restart, instead of taking the worker down again at the same step.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np

from failsoft.errors import ConfigError
from failsoft.training.chronicle import Desk
from failsoft.training.degradation import Degradation, DegradationKind, Degradations
from failsoft.training.loading.quarantine import Gate, Quarantine
from failsoft.training.ranks import MayBeAsked, Ranks, any_rank, from_rank_zero
from failsoft.training.state import TrainingState
from failsoft.training.validation_look import Share, Validates, combined, look
from failsoft.training.validation_plan import ValidationPlan

__all__ = ["MARK", "Validates", "ValidationPlan", "Validator"]

MARK = "validation_deaths"
"""File in the run's folder: how often in a row a look did not come back."""


class Validator:
    """Looks when it is due; the loop's ``validation``. All ranks make one alike.

    Args:
        task: knows samples and metrics.
        state: of the run; its bare model is looked at.
        ranks: share the samples.
        desk: ledger, clock and folder.
        plan: how often, and how.
        batches_per_epoch: global batches of an epoch, for looks at its end.
    """

    def __init__(
        self,
        task: Validates,
        state: TrainingState,
        ranks: Ranks,
        desk: Desk,
        plan: ValidationPlan,
        *,
        batches_per_epoch: int,
    ) -> None:
        if task.validation_samples < 1:
            raise ConfigError(
                f"validation_samples is {task.validation_samples}; a look needs at least one sample, leave the "
                "validation out when there are none"
            )
        if any(hasattr(parameter, "full_tensor") for parameter in state.model.parameters()):
            raise ConfigError(
                "the model's parameters lie in shards on several ranks (FSDP2), so that each forward pass is a "
                "collective, and a rank that tries again in smaller batches would leave the others waiting; leave the "
                "validation out, and validate checkpoints beside the run"
            )
        self._task, self._state, self._ranks, self._desk, self._plan = task, state, ranks, desk, plan
        self._per_epoch = batches_per_epoch
        self._epoch: int | None = None
        self._chance = random.Random(0)
        self._quarantine = Quarantine(plan.rest, desk.clock, self._chance)
        self._degradations = Degradations(self._tell)
        self._deaths: int | None = None
        self._not_before_s = -math.inf
        self.broken_off = False
        """The last look was, as all ranks know it; see :class:`failsoft.training.owed_look.BreaksOff`."""

    def due(self, state: TrainingState) -> bool:
        """After an applied step: whether to look now. No collective; the same on all ranks."""
        before = (state.position - 1) // self._per_epoch if self._epoch is None else self._epoch
        self._epoch = state.position // self._per_epoch
        if self._plan.at_epoch_end and self._epoch > before:
            return True
        return self._plan.every_steps is not None and state.step % self._plan.every_steps == 0

    def run(self) -> dict[str, float]:
        """Look, unless the looks rest; the metrics that could be computed, the same on all ranks."""
        self.broken_off = False
        if from_rank_zero(self._ranks, self._word()) != "look":
            return {}
        began_s = self._desk.clock.monotonic_s()
        self._mark((self._deaths or 0) + 1)
        samples = np.arange(self._task.validation_samples, dtype=np.int64)[self._ranks.rank :: self._ranks.world]
        plan, asked = self._plan, self._ranks.asked if isinstance(self._ranks, MayBeAsked) else _never
        mine = look(self._task, self._state.model, samples, batch=plan.batch, halvings=plan.halvings, asked=asked)
        told = [Share(**json.loads(text)) for text in self._ranks.gather(json.dumps(vars(mine)))]
        self._mark(0)
        took_s = self._desk.clock.monotonic_s() - began_s
        self.broken_off = any(share.asked for share in told)
        if self.broken_off:
            any_rank(self._ranks, mine.asked)  # the word rides on sums: with this one all leave at this very step
            why = "told to leave: what there is to save comes first"
            self._tell("validation_broken_off", why, took_s=round(took_s, 6))
            return {}
        found, absent = combined(told)
        self._follow(told, found, absent, took_s=took_s)
        return found

    def _word(self) -> str:
        """Rank 0's: whether to look. Its clock alone counts rests."""
        if self._ranks.rank:
            return ""
        now_s = self._desk.clock.monotonic_s()
        if self._deaths is None:
            self._deaths = self._deaths_before()
            if self._deaths:
                rest_s = self._plan.after_death.wait_s(self._deaths, self._chance)
                self._not_before_s = now_s + rest_s
                self._rests(f"the last look did not come back ({self._deaths} in a row)", rest_s)
        if now_s < self._not_before_s or not self._quarantine.admits():
            return "rest"
        return "look"

    def _follow(self, told: list[Share], found: dict[str, float], absent: list[str], *, took_s: float) -> None:
        failed = {rank: share.why for rank, share in enumerate(told) if share.why}
        counts = {"took_s": round(took_s, 6), "batch": min(share.batch for share in told)}
        counts |= {"samples": sum(share.samples for share in told), "failures": sum(share.failures for share in told)}
        why = "; ".join(f"rank {rank}: {said}" for rank, said in failed.items())
        if found:
            said = why or "on schedule"
            self._tell("validated", said, metrics=found, absent=absent, **counts)
            self._quarantine.answered()
            self._degradations.ended(DegradationKind.CALLBACK, name="validation", why="it works again")
            return
        why = why or f"no metric is finite over all samples: {', '.join(absent) or 'none was given'}"
        self._tell("validation_failed", why, absent=absent, ranks=sorted(failed), **counts)
        self._quarantine.failed(why)
        if self._quarantine.gate is Gate.OPEN:
            self._rests(self._quarantine.cause, self._quarantine.rest_s)

    def _rests(self, cause: str, rest_s: float) -> None:
        self._degradations.began(
            Degradation(
                kind=DegradationKind.CALLBACK,
                name="validation",
                cause=cause,
                level=f"rests for {rest_s:.0f} s",
                cost="no metrics of validation, so no checkpoint is best by them",
                way_back="one look after the rest; it goes on when that works",
            )
        )

    @property
    def _mark_path(self) -> Path:
        return self._desk.folder / MARK

    def _deaths_before(self) -> int:
        try:
            return max(0, int(self._mark_path.read_text("utf-8")))
        except (OSError, ValueError):
            return 0

    def _mark(self, deaths: int) -> None:
        """A disk that takes no mark costs one more restart, not the run."""
        if self._ranks.rank:
            return
        self._deaths = 0
        try:
            if deaths:
                self._mark_path.write_text(str(deaths), "utf-8")
            else:
                self._mark_path.unlink(missing_ok=True)
        except OSError:
            return

    def _tell(self, kind: str, why: str, **data: Any) -> None:
        if self._ranks.rank == 0:
            where = {"position": self._state.position, "step": self._state.step}
            self._desk.ledger.record(kind, why, **(where | data))


def _never() -> bool:
    return False
