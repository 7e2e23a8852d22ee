"""What a move along the memory ladder says: cause, rung, cost, and the way back."""

from __future__ import annotations

from torch import nn

from failsoft.health.clock import Clock
from failsoft.training.degradation import Degradation, DegradationKind, Degradations
from failsoft.training.memory.ladder import MemoryLadder, Step
from failsoft.training.memory.micro_batches import Distortion, distortions
from failsoft.training.memory.oom import Trouble
from failsoft.training.memory.rungs import Means, MemoryPolicy, Notch, Rung, left_out


class LadderStory:
    """Tells moves as degradations that begin, change and end. Silent until the run has begun."""

    def __init__(
        self, degradations: Degradations, model: nn.Module, clock: Clock, policy: MemoryPolicy, means: Means
    ) -> None:
        self._degradations = degradations
        self._clock = clock
        self._in_pieces = distortions(model)
        self.left_out = left_out(policy, means)
        """Rungs that this run does not have, and why."""
        self.trouble: Trouble | None = None
        """What the next move is about; None for pressure and for the way up."""
        self.distortion: Distortion | None = None
        """Of the capped input now."""
        self._begun = False
        self._since: tuple[int, float] = (0, 0.0)
        self._full_size_s: float | None = None

    def begins(self, ladder: MemoryLadder) -> None:
        """The run goes on; what a checkpoint brought back begins anew."""
        self._begun = True
        self._since = (0, self._clock.monotonic_s())
        if ladder.notch.rung is not Rung.FULL_SIZE:
            self._tell(ladder.notch, "so the run was left", ladder.patience_steps, {})

    def moved(self, step: Step, *, position: int) -> None:
        """One move."""
        timing = self._timing(step.before, position)
        trouble, self.trouble = self.trouble, None
        if not self._begun:
            return
        if step.after.rung is Rung.FULL_SIZE:
            self._degradations.ended(DegradationKind.MEMORY, why=step.why)
        else:
            details = timing | {"relapses": step.relapses, "left_out": self.left_out}
            if trouble is not None:
                details |= {"rank": trouble.rank, "where": trouble.where, "requested_bytes": trouble.requested_bytes}
            self._tell(step.after, step.why, step.patience_steps, details)
        self._tell_of_updates(step.after, step.why, step.patience_steps)

    def _tell(self, notch: Notch, why: str, patience_steps: int, details: dict[str, object]) -> None:
        told = details | {"rung": notch.rung, "distortions": self._distorts(notch)}
        self._degradations.began(
            Degradation(
                kind=DegradationKind.MEMORY,
                cause=why,
                level=notch.in_words(),
                cost=self._cost(notch),
                way_back=_way_back(patience_steps),
                details=told,
            )
        )

    def _tell_of_updates(self, notch: Notch, why: str, patience_steps: int) -> None:
        updates = notch.setting.updates
        if updates == 1:
            self._degradations.ended(DegradationKind.SMALLER_BATCH, why=why)
            return
        self._degradations.began(
            Degradation(
                kind=DegradationKind.SMALLER_BATCH,
                cause=why,
                level=f"1/{updates} of a batch an update",
                cost=f"each update learns at 1/{updates} of the rate",
                way_back=_way_back(patience_steps),
            )
        )

    def _timing(self, before: Notch, position: int) -> dict[str, object]:
        """Seconds a batch on the notch that is left, and times those at full size."""
        (then, then_s), now_s = self._since, self._clock.monotonic_s()
        self._since = (position, now_s)
        if position <= then or not now_s > then_s:
            return {}
        batch_s = (now_s - then_s) / (position - then)
        if before.rung is Rung.FULL_SIZE:
            self._full_size_s = batch_s
        factor = None if self._full_size_s is None else round(batch_s / self._full_size_s, 3)
        return {"batch_s_before": round(batch_s, 6), "time_factor_before": factor}

    def _distorts(self, notch: Notch) -> list[str]:
        setting = notch.setting
        said = list(self._in_pieces) if setting.micro_batches > 1 or setting.updates > 1 else []
        if setting.cap_level and self.distortion is not None:
            said.append(self.distortion.said)
        return said

    def _cost(self, notch: Notch) -> str:
        setting = notch.setting
        return {
            Rung.CACHES: "what was cached is asked for anew",
            Rung.MICRO_BATCHES: f"{setting.micro_batches} small passes for each large one; the gradient is the same",
            Rung.INPUT_CAP: "part of the input is not learnt from",
            Rung.OFFLOAD: "the optimizer's state travels to the device and back at each update",
            Rung.SMALLER_UPDATES: f"{setting.updates} updates a batch, at 1/{setting.updates} of the learning rate",
            Rung.BATCH_GIVEN_UP: "a batch is lost to the run",
        }.get(notch.rung, "")


def _way_back(patience_steps: int) -> str:
    return f"one notch up after {patience_steps} updates without trouble"
