"""What a step guard needs around it in somebody else's trainer: counts, snapshots, the way back, dead letters, ledger.

The trainer's adapter (:mod:`failsoft.training.for_lightning`, :mod:`failsoft.training.for_transformers`) says when a
step was examined and when it is over; the companion judges the run and acts on model, optimizer, scheduler and scaler.
It never moves the trainer's own data position: batches of a burst that led to a rollback, and those whose updates the
rollback took back, are not met again; each leaves a dead letter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from failsoft.errors import ConfigError, DropRateError, TrainingError
from failsoft.health.aside import Aside
from failsoft.health.clock import Clock, SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.breaker import Advice, Breaker, BreakerPolicy, RunState
from failsoft.training.escalation import Remedy
from failsoft.training.guard import GuardPolicy, StepGuard, StepOutcome
from failsoft.training.letters.letter_office import LetterOffice
from failsoft.training.ranks import any_rank
from failsoft.training.rng import capture_rng, restore_rng
from failsoft.training.snapshots.snapshot import RamSnapshots
from failsoft.training.state import TrainingState

SampleIds = Tensor | Sequence[int]
"""Ids as the batch holds them; a tensor may lie on the device, and is read only when a letter is written."""
ID_COLUMN = "sample_ids"
"""Where a batch that is a mapping says which samples it holds."""


@dataclass(frozen=True, kw_only=True)
class GuardOptions:
    """How a foreign trainer is guarded."""

    policy: GuardPolicy = field(default_factory=GuardPolicy)
    """Limits of a step. Clipping stays the trainer's own: ``max_grad_norm`` is not read."""
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    snapshot_every_steps: int = 100
    """Applied steps between RAM snapshots: what a rollback undoes at most."""
    folder: Path | None = None
    """Where dead letters and the ledger go; None: ``failsoft`` in the trainer's own output folder."""
    ledger: Ledger | None = None
    """None: ``ledger.jsonl`` in the folder."""
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        """Refuse what a foreign trainer can't do."""
        if self.snapshot_every_steps < 1:
            raise ConfigError(f"snapshot_every_steps is {self.snapshot_every_steps}; use 1 or more")
        if self.policy.autocast_dtype is not None:
            raise ConfigError(
                f"autocast_dtype is {self.policy.autocast_dtype}, but the trainer runs the forward pass; leave it None "
                "and set the trainer's own precision"
            )


class Companion:
    """The counts of one run, and what follows from them. Made early, so that a checkpoint can be loaded into it."""

    def __init__(self, options: GuardOptions) -> None:
        self.options = options
        self.breaker = Breaker(options.breaker)
        self.stop: TrainingError | None = None
        """Why the run must not go on; the adapter ends it and raises this."""
        self._loaded: Mapping[str, Any] | None = None
        self._since: list[tuple[int, list[SampleIds]]] = []
        self._warned = False
        self._begun = False

    def begin_run(self, state: TrainingState, guard: StepGuard, *, folder: Path, total_batches: int) -> None:
        """Take the run over as it stands before its first step (after a resume: as it was restored).

        Args:
            state: the live parts; its ``breaker`` is set here, its counts too when a checkpoint was loaded.
            guard: works on the same parts; its refusals are told here.
            folder: where to write when the options name none.
            total_batches: updates that the trainer plans, refused ones included, for readers of the ledger.

        Raises:
            TrainingError: weights or buffers are not finite already.
        """
        self._state, self._guard, self._begun = state, guard, True
        state.breaker, state.guard = self.breaker, guard
        guard.on_refused = self._bury
        self._take_on()
        folder = self.options.folder or folder
        self._ledger = self.options.ledger or Ledger(
            folder / "ledger.jsonl",
            self.options.clock,
            side=Side.TRAINING,
            subject=folder.resolve().parent.name,
            aside=Aside(self.options.clock),
        )
        self._letters = LetterOffice(
            run_folder=folder,
            clock=self.options.clock,
            model=state.model,
            ranks=guard.ranks,
            guard=guard,
            on_lost=lambda why: self._tell("words_lost", why),
        )
        if state.position:
            self._letters.resumed(state.position)
        why = f"from position {state.position}" if state.position else "from the beginning"
        self._tell("run_started", why, total_batches=total_batches, world=guard.ranks.world, repeated_batches=0)
        self._snapshots = RamSnapshots(state, ranks=guard.ranks)
        self._first_snapshot()

    @property
    def position(self) -> int:
        """Updates that the trainer attempted, refused ones included; 0 where it had nothing to do."""
        return self._state.position if self._begun else 0

    @property
    def step(self) -> int:
        """Updates that are in the weights; 0 where the trainer had nothing to do."""
        return self._state.step if self._begun else 0

    @property
    def letters_folder(self) -> Path:
        """Where the dead letters lie, once the run has begun."""
        return self._letters.folder

    @property
    def refused(self) -> int:
        """Updates refused so far."""
        return self.breaker.refused

    def settle(self, outcome: StepOutcome, ids: list[SampleIds]) -> None:
        """Count a step whose traces are all made or undone, scheduler included; snapshot, roll back or stop.

        Args:
            outcome: what the guard said, carried out.
            ids: of this rank's samples, by micro-batch.
        """
        position = self._state.position
        self._state.position += 1
        advice, why = self.breaker.record(applied=outcome.applied, position=position)
        if outcome.applied:
            self._state.step += 1
            self._since.append((position, ids))
            if len(self._since) >= self.options.snapshot_every_steps:
                self._take_snapshot()
        if advice is Advice.ROLL_BACK:
            self._go_back(why)
        elif advice is not Advice.GO_ON:
            self._stop(advice, why)
        self._watch()

    def heal_before_publishing(self) -> bool:
        """Before the trainer writes a checkpoint: if the weights are ill, go back; returns whether it did.

        A checkpoint of an ill state would push the last healthy one out of the trainer's retention. All ranks call it.
        """
        ill = self._guard.first_unhealthy()
        if not any_rank(self._guard.ranks, ill is not None):
            return False
        self._roll_back(f"{ill or 'a tensor of another rank'} is not finite, and a checkpoint is due")
        return True

    def finish(self) -> None:
        """The trainer is done.

        Raises:
            TrainingError: the run was stopped by a diagnosis (DropRateError: because of its data).
        """
        if self.stop is not None:
            raise self.stop
        self.breaker.life.move(RunState.FINISHED, why="the trainer is done")
        counts = {"refused": self.refused, "rollbacks": self.breaker.rollbacks}
        self._tell("run_finished", "the trainer is done", **counts)

    def state_dict(self) -> dict[str, Any]:
        """Counts and the guard's recent levels, as small JSON for the trainer's checkpoint."""
        counts = {"position": self._state.position, "step": self._state.step}
        return counts | {"breaker": self.breaker.state_dict(), "guard": self._guard.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the counts of a checkpoint on; before :meth:`begin_run`."""
        self._loaded = dict(state_dict)

    def _take_on(self) -> None:
        if self._loaded is not None:
            self._state.position, self._state.step = int(self._loaded["position"]), int(self._loaded["step"])
            self.breaker.load_state_dict(dict(self._loaded["breaker"]))
            self._guard.load_state_dict(dict(self._loaded["guard"]))

    def _first_snapshot(self) -> None:
        ill = self._take_snapshot()
        if ill is not None:
            raise TrainingError(
                f"{ill} is not finite before the first step, so there is no state to go back to; start from finite "
                "weights, or from an earlier checkpoint"
            )

    def _take_snapshot(self) -> str | None:
        ill = self._snapshots.take()
        if ill is None:
            self._since.clear()
        else:
            self._tell("snapshot_withheld", f"{ill} is not finite", tensor=ill)
        return ill

    def _go_back(self, why: str) -> None:
        """By the next remedy at this place. Checkpoints are the trainer's own: no hook loads one during a run."""
        remedy = self.breaker.remedy()
        if remedy is Remedy.DISK:
            self.breaker.tried(remedy, position=self.position, why=f"{why}; out of reach of a trainer's hooks")
            remedy = self.breaker.remedy()
        if remedy is Remedy.STOP:
            self._stop(Advice.STOP_STUCK, why)
            return
        relief, factor = self._guard.relief, self.options.breaker.escalation.lower_rate_factor
        if remedy is Remedy.SNAPSHOT_SLOWER and relief.factor > factor:
            relief.lower(factor / relief.factor)
        self._roll_back(why, remedy)

    def _roll_back(self, why: str, remedy: Remedy = Remedy.SNAPSHOT) -> None:
        """Weights and all go back; the trainer's data goes on, so torch's generators, which it may draw from, do too.

        A generator that went back would make the next epoch's shuffle the one of this epoch again. A loss scale that
        backed off stays: the older one is what overflowed.
        """
        alive = self.breaker.life.may_move(RunState.ROLLING_BACK)  # a trainer may save once more after its end
        if alive:
            self.breaker.life.move(RunState.ROLLING_BACK, why=why)
        position, step, burst = self._state.position, self._state.step, self.breaker.in_a_row
        scaler = self._state.scaler
        scale = None if scaler is None else scaler.state_dict().get("scale")
        generators = capture_rng()
        mark = self._snapshots.restore()
        restore_rng(generators)
        self._state.position = position
        if scaler is not None and scale is not None and scale < scaler.get_scale():
            scaler.load_state_dict(scaler.state_dict() | {"scale": scale, "_growth_tracker": 0})
        self.breaker.rolled_back(remedy=remedy, position=position, why=why)
        self._bury_undone()
        self._tell(
            "rolled_back",
            why,
            step_before=step,
            step_after=mark.step,
            undone_steps=step - mark.step,
            snapshot_position=mark.position,
            refused_in_burst=burst,
            remedy=remedy.name.lower(),
        )
        if alive:
            self.breaker.life.move(RunState.RUNNING, why=f"back at step {mark.step}")

    def _stop(self, advice: Advice, why: str) -> None:
        diagnosis = (
            f"{advice} ({why}) at update {self._state.position}, of which {self._state.step} are in the weights; look "
            f"at the batches named in {self._letters.folder}, and mend or remove their data before the next run"
        )
        self.breaker.life.move(RunState.STOPPED, why=diagnosis)
        self._tell("run_stopped", diagnosis)
        self.stop = (DropRateError if advice is Advice.STOP_DROP_RATE else TrainingError)(diagnosis)

    def _bury(self, outcome: StepOutcome) -> None:
        letter = self._letters.refused(outcome, step=self._state.step)
        data = self._letters.event_data(letter) | {"in_a_row": self.breaker.in_a_row + 1}
        self._tell("batch_refused", outcome.refusal or "", **data)

    def _bury_undone(self) -> None:
        for position, parts in self._since:
            self._letters.undone(position, ids_of(parts), step=self._state.step, undone_at=self._state.position)
        self._since.clear()

    def _watch(self) -> None:
        """Say once when the drop rate goes above its warning level."""
        verdict = self.breaker.drop_rate
        if verdict.warning and not self._warned:
            self._tell("drop_rate_warning", verdict.reason, bad=verdict.bad, total=verdict.total)
        self._warned = verdict.warning

    def _tell(self, kind: str, why: str, **data: object) -> None:
        if self._guard.ranks.rank == 0:
            self._ledger.record(kind, why, **({"position": self._state.position, "step": self._state.step} | data))


def ids_in(batch: object) -> SampleIds:
    """What a batch says of its samples: its ``sample_ids`` when it is a mapping that has them, else nothing."""
    found = batch.get(ID_COLUMN) if isinstance(batch, Mapping) else None
    return found if isinstance(found, Tensor | list | tuple) else ()


def ids_of(parts: Sequence[SampleIds]) -> tuple[int, ...]:
    """Plain numbers from the ids of micro-batches; waits for the device if they lie there."""
    plain = (part.flatten().tolist() if isinstance(part, Tensor) else part for part in parts)
    return tuple(int(sample) for part in plain for sample in part)
