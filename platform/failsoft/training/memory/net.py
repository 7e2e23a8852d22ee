"""Carries the memory ladder out around the guarded step: a batch that does not fit is done in smaller bites.

::

    net = MemoryNet(guard=guard, policy=MemoryPolicy(), task=task, global_batch=64)
    outcome = net.step(Batch(position=position, whole=indices, loss=task.loss))

Each batch is used once, whatever happens: a pass that ran out of memory left no trace, and the same batch is tried
again one notch down, by all ranks, until it is applied, refused for its numbers, or given up with a dead letter. On the
rung of smaller updates the samples of a global batch are spread over several updates, each at its share of the learning
rate; scheduler, EMA and the run's count of steps move once a batch. A batch of which one such part is refused counts as
refused, and says how much of it was applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from failsoft.health.clock import Clock, SystemClock
from failsoft.training.backward import Compute
from failsoft.training.degradation import Degradations
from failsoft.training.guard import StepGuard
from failsoft.training.loading.weighing import Loads
from failsoft.training.loading.weighing import rank_weight as agreed_weight
from failsoft.training.memory.attempt import SharedAttempt
from failsoft.training.memory.batch import Batch, combined, given_up, nothing_real
from failsoft.training.memory.ladder import MemoryLadder, Step
from failsoft.training.memory.micro_batches import (
    Indices,
    Shrinks,
    TaskWeighs,
    cut,
    least_piece,
    piece_size,
    rank_weight,
    shares_of,
    that_count,
    weigher,
)
from failsoft.training.memory.note import leave_note, take_note
from failsoft.training.memory.offload import StateOffload
from failsoft.training.memory.oom import CAN_BE, Trouble, free_caches, trouble_of
from failsoft.training.memory.pressure import PressureGauge, host_limit, pressed
from failsoft.training.memory.rungs import LOSSLESS, Means, MemoryPolicy, Rung, notches
from failsoft.training.memory.story import LadderStory
from failsoft.training.ranks import any_rank, from_rank_zero
from failsoft.training.verdict import StepOutcome


@dataclass(kw_only=True)
class MemoryNet:
    """One rank's net. All ranks have one, and step together."""

    guard: StepGuard
    """Its passes are taken over. With the model in its DDP wrapper where there are several ranks."""
    policy: MemoryPolicy
    task: object
    """Asked how it weighs samples (:class:`TaskWeighs`) and whether it shrinks (:class:`Shrinks`)."""
    global_batch: int
    degradations: Degradations = field(default_factory=lambda: Degradations(_untold))
    """Where moves are told."""
    run_folder: Path | None = None
    """For the word to the next attempt."""
    clock: Clock = field(default_factory=SystemClock)
    gauge: PressureGauge | None = None
    """By default of the model's device."""
    on_retry: Callable[[int], object] = lambda _position: None
    """Told of the batch's position each time that it is tried again: to a watchdog, a batch begins."""

    def __post_init__(self) -> None:
        """Work out the ladder; nothing is read yet."""
        ranks, optimizer = self.guard.ranks, self.guard.optimizer
        device = next((parameter.device for parameter in self.guard.model.parameters()), torch.device("cpu"))
        self.gauge = self.gauge or PressureGauge(device)
        self._on_host = device.type == "cpu"
        self._host_limit = host_limit(self.policy)
        self._weigh = weigher(self.task)
        self._loads = isinstance(self.task, Loads)  # asked once: a protocol takes microseconds to look for
        self._alike = not self._loads and not isinstance(self.task, TaskWeighs)
        self._offload = StateOffload(optimizer)
        self.means = Means(
            largest_share=-(-self.global_batch // ranks.world),
            least_piece=least_piece(self.guard.model),
            uncut=_uncut(self.task),
            cap_levels=self.task.shrink_levels if isinstance(self.task, Shrinks) else 0,
            can_offload=StateOffload.useful(optimizer),
        )
        ladder, lossless = notches(self.policy, self.means), LOSSLESS
        if self.means.least_piece > 1:  # batch norm learns from other statistics in pieces
            lossless -= {Rung.MICRO_BATCHES}
        self.ladder = MemoryLadder(self.policy, ladder, self._carry_out, lossless=lossless)
        self._attempt = SharedAttempt(self.guard, self._leave_word)
        self._story = LadderStory(self.degradations, self.guard.model, self.clock, self.policy, self.means)
        self._position = 0
        self._next_look_s = -math.inf
        self.least_updates = 1
        """A batch is spread over at least so many updates, whatever the rung."""

    def begin(self) -> None:
        """The state is restored; take the word of the attempt before, and say on which rung the run goes on."""
        ranks, folder = self.guard.ranks, self.run_folder
        word = take_note(folder) if folder is not None and ranks.rank == 0 else ""
        word = from_rank_zero(ranks, word) if folder is not None else ""
        if word and not self.ladder.only_giving_up_is_left:
            self.ladder.ran_out(word)
        self._story.begins(self.ladder)

    def step(self, batch: Batch) -> StepOutcome:
        """One batch, done in one way or another.

        Raises:
            torch.OutOfMemoryError: nothing is left to try, and the policy gives no batch up; or it was in the middle
                of the optimizer's update, which can't be taken back: go on from a checkpoint.
            Exception: whatever else the passes raise, after everything is back as it was.
        """
        self._position = batch.position
        if not batch.position % self.policy.look_every_batches:
            self._look()
        if self._updates == 1:
            result = self._update(batch, batch.whole)
            if not isinstance(result, Trouble):
                if result.refusal is None:
                    self.ladder.applied()
                return result
            if not self._down(result):
                return self._given_up(batch, batch.whole, result)
        return self._in_parts(batch)

    def _in_parts(self, batch: Batch) -> StepOutcome:
        """Until every sample is used or given up, on whatever notch holds by then."""
        todo, done = batch.whole, list[StepOutcome]()
        while len(todo):
            part = self._part(batch, todo)
            result = self._update(batch, part)
            if isinstance(result, Trouble):
                if self._down(result):
                    continue
                result, part = self._given_up(batch, todo, result), todo
            done.append(result)
            todo = todo[len(part) :]
        outcome = done[0] if len(done) == 1 else combined(done, self._mine(batch, batch.whole).tolist())
        if outcome.refusal is None:
            if len(done) > 1:  # only now is it known that the batch counts as applied
                self.guard.moved_on(outcome.mean_loss, self.guard.mean_norm)
            self.ladder.applied()
        return outcome

    @property
    def _updates(self) -> int:
        """How many a batch is spread over now."""
        return max(self.ladder.setting.updates, 1 if self.means.uncut else self.least_updates)

    def _part(self, batch: Batch, todo: Indices) -> Indices:
        size = piece_size(len(batch.whole), self._updates)
        return todo if len(todo) - size < self.means.least_piece * self.guard.ranks.world else todo[:size]

    def weight_of(self, mine: Indices, part: Indices) -> float | None:
        """What makes the mean over ranks the mean over these samples; None when no rank has one that counts.

        All ranks call it together: those of a task that loads its samples must ask each other.
        """
        if self._alike:
            return len(mine) * self.guard.ranks.world / len(part)
        if self._loads:
            return agreed_weight(self.guard.ranks, self._weigh(mine))
        return rank_weight(mine, part, self.guard.ranks.world, self._weigh)

    def _update(self, batch: Batch, part: Indices) -> StepOutcome | Trouble:
        mine, whole = self._mine(batch, part), len(part) == len(batch.whole)
        weight = batch.weight if whole and batch.weight is not None else self.weight_of(mine, part)
        if weight is None:
            return nothing_real(batch, mine, self.guard.ranks.rank)
        counts = len(mine) and (weight > 0.0 or self._loads)
        compute, shares = self._computes(batch, mine if counts else self._stand_in(part), weight)
        result = self._attempt(compute, shares, mine.tolist(), batch.position)
        if isinstance(result, Trouble):
            return result
        if result.refusal is None:
            self._apply(result, len(part) / len(batch.whole))
        else:
            self.guard.refuse(result)
        return result

    def _apply(self, result: StepOutcome, portion: float) -> None:
        """An update that breaks off can't be taken back, so its error goes up; the restarted run begins lower."""
        try:
            self.guard.apply(result, portion=portion, moves_on=portion == 1.0)
        except CAN_BE as error:
            trouble = trouble_of(error, rank=self.guard.ranks.rank)
            if trouble is not None:
                self._leave_word(trouble, "in the middle of an update")
            raise

    def _mine(self, batch: Batch, part: Indices) -> Indices:
        ranks = self.guard.ranks
        return part[ranks.rank :: ranks.world] if batch.share is None else batch.share(part)

    def _computes(
        self, batch: Batch, samples: Indices, weight: float
    ) -> tuple[Compute | Sequence[Compute], list[float] | None]:
        """The passes of one update. A rank without a share goes through the motions with a sample of weight 0."""
        size = piece_size(self.means.largest_share, self.ladder.setting.micro_batches)
        if size >= len(samples):
            return (lambda: batch.loss(samples) * weight), None
        pieces = cut(samples, size, least=self.means.least_piece)
        if batch.partial_loss is None:
            counted = that_count(pieces, shares_of(pieces, self._weigh))
            return [_one(batch.loss, piece, weight) for piece, _share in counted], [share for _piece, share in counted]
        among, count = partial(batch.partial_loss, whole=samples), len(pieces)
        return [_one(among, piece, weight * count) for piece in pieces], [1.0 / count] * count

    def _stand_in(self, part: Indices) -> Indices:
        """For a rank without a sample that counts: one that does; of none the mean is NaN, also at weight 0."""
        if self._loads:
            return part[:1]  # it is the one that was loaded for that
        counts = next((at for at in range(len(part)) if self._weigh(part[at : at + 1]) > 0.0), 0)
        first = max(0, min(counts, len(part) - self.means.least_piece))
        return part[first : first + self.means.least_piece]

    def _down(self, trouble: Trouble) -> bool:
        """One notch; False when what is left is to give the batch up."""
        self._story.trouble = trouble
        if self.ladder.at_the_end:
            raise torch.OutOfMemoryError(
                f"{trouble.in_words()}; nothing is left to try after {self.ladder.notch.in_words()}: use a smaller "
                f"global batch, or allow more rungs (left out: {self._story.left_out})"
            )
        self.on_retry(self._position)
        return self.ladder.ran_out(trouble.in_words()).rung is not Rung.BATCH_GIVEN_UP

    def _given_up(self, batch: Batch, todo: Indices, trouble: Trouble) -> StepOutcome:
        outcome = given_up(batch, self._mine(batch, todo), self.guard.ranks.rank, trouble.in_words())
        self.guard.on_refused(outcome)
        self.ladder.given_up()
        return outcome

    def _look(self) -> None:
        """Before the fall: whether memory is short on any rank; the same answer everywhere."""
        if not self.policy.rungs:
            return
        own, ranks = self._short(), self.guard.ranks
        if not any_rank(ranks, bool(own)):
            return
        said = [f"rank {rank}: {text}" for rank, text in enumerate(ranks.gather(own)) if text]
        self._story.trouble = None
        self.ladder.pressed("; ".join(said))

    def _short(self) -> str:
        """What is short on this rank, in words; not read again within a second, for it takes some small files."""
        now_s = self.clock.monotonic_s()
        if self.gauge is None or now_s < self._next_look_s:
            return ""
        self._next_look_s = now_s + self.policy.look_every_s
        readings = self.gauge.read()
        return pressed(readings, self.policy, host_limit=self._host_limit, trains_on_host=self._on_host) or ""

    def _carry_out(self, step: Step) -> None:
        """What a notch changes beside the cutting of batches, which asks the ladder each time."""
        before, after = step.before.setting, step.after.setting
        if after.cap_level != before.cap_level and isinstance(self.task, Shrinks):
            self._story.distortion = self.task.shrink(after.cap_level)
        if after.offloaded != before.offloaded:
            (self._offload.on if after.offloaded else self._offload.off)()
        free_caches()
        if self.gauge is not None:
            self.gauge.settle()
        self._story.moved(step, position=self._position)

    def _leave_word(self, trouble: Trouble, why: str | None = None) -> None:
        if self.run_folder is not None:
            why = why or self._attempt.unshared or "beside the passes, where the other ranks can't be told"
            leave_note(self.run_folder, f"{trouble.in_words()} ({why})")


def _untold(kind: str, why: str, **data: object) -> None:
    """Where moves go while nobody listens."""


def _one(loss: Callable[[Indices], Tensor], piece: Indices, weight: float) -> Compute:
    return lambda: loss(piece) * weight


def _uncut(task: object) -> str:
    if isinstance(task, Loads) and not isinstance(task, TaskWeighs):
        return "the task loads its samples and does not say by weight() what some of them count"
    return ""
