"""Takes a run to the state that a dead batch met: from a kept checkpoint, along the batches that the run applied.

Only reads: nothing is put into quarantine, swept or pruned, so it may be done beside a live run. One process plays all
ranks in turn, each with its own generators and (as under DDP) rank 0's buffers; the mean of two gradients is then
the same bit for bit, of more ranks the order of additions may differ. Planned faults do not strike again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.artifacts.store import Artifact
from failsoft.errors import ArtifactError
from failsoft.training.checkpoints.checkpoint import read_tensors, versions
from failsoft.training.checkpoints.inspection import is_healthy, ordered, position_of, scalars_of
from failsoft.training.guard import Compute, Refusal, StepOutcome
from failsoft.training.letters.history import History
from failsoft.training.letters.letter import DeadLetter
from failsoft.training.letters.rebuild import Parts, Rebuild
from failsoft.training.letters.trials import FOREIGN
from failsoft.training.memory.micro_batches import cut, least_piece, piece_size, shares_of
from failsoft.training.pace.shares import part
from failsoft.training.rng import RngState, capture_rng, restore_rng, seed_all
from failsoft.training.state import FlatState, unflatten

_MAX_NOTES = 8
Watch = Callable[[int, int], object]
"""Told how many batches were walked, and of how many."""


@dataclass(kw_only=True)
class Reached:
    """Where a walk ended."""

    parts: Parts
    generators: list[RngState]
    """Of each rank."""
    started_from: str
    """Name of a checkpoint, or ``the beginning``."""
    position: int
    """Batches consumed in this state."""
    walked: int = 0
    """Updates applied on the way."""
    notes: list[str] = field(default_factory=list)
    """What may keep this state from being the one that the run had."""

    def strayed(self, note: str) -> None:
        """Take down a step that went otherwise than the run's own; the first few stand for all."""
        if len(self.notes) <= _MAX_NOTES:
            self.notes.append(note if len(self.notes) < _MAX_NOTES else "and more of the kind")


@dataclass(kw_only=True)
class Walker:
    """Walks one run again."""

    rebuild: Rebuild
    history: History
    world: int = 1
    max_walk: int = 10_000
    """Batches between the checkpoint and the dead one; when there are more, the nearest checkpoint must do."""
    watch: Watch = lambda _done, _total: None

    def to(self, position: int) -> Reached:
        """The state in which the run met the batch at ``position``, or the nearest that can be had.

        Raises:
            IncompatibleArtifactError: the checkpoint does not fit the parts that the run is built of now.
        """
        reached = self._start(position)
        if position - reached.position > self.max_walk:
            reached.notes.append(
                f"{position - reached.position} batches lie between {reached.started_from} and position {position}, "
                f"more than {self.max_walk}: not walked"
            )
            return reached
        self._walk(reached, position)
        return reached

    def _start(self, position: int) -> Reached:
        parts, notes = self.rebuild.parts(), list[str]()
        artifact = self._checkpoint_before(position, notes)
        if artifact is None:
            generators = [self._seeded(rank, 0) for rank in range(self.world)]
            return Reached(parts=parts, generators=generators, started_from="the beginning", position=0, notes=notes)
        scalars = scalars_of(artifact)
        flat = FlatState(tensors=read_tensors(artifact), scalars=scalars)
        unflatten(flat, parts.state, with_breaker=True)
        saved = list(scalars["rng"])
        fits = len(saved) == self.world  # else the run drew anew from here, settled by rank and position
        generators = saved if fits else [self._seeded(rank, parts.state.position) for rank in range(self.world)]
        notes += self._differences(scalars)
        return Reached(
            parts=parts,
            generators=generators,
            started_from=artifact.name,
            position=parts.state.position,
            notes=notes,
        )

    def _checkpoint_before(self, position: int, notes: list[str]) -> Artifact | None:
        fitting = [one for one in ordered(self.rebuild.store) if is_healthy(one.manifest)]
        before = [one for one in fitting if position_of(one.manifest) <= position]
        for candidate in reversed([one for one in before if self._led_here(position_of(one.manifest), position)]):
            try:
                return self.rebuild.store.open(candidate.name)
            except (ArtifactError, OSError) as error:  # left where it is: a replay only reads
                notes.append(f"checkpoint {candidate.name} can't be used: {error}")
        return None

    def _led_here(self, checkpoint: float, position: int) -> bool:
        """Whether the run went on from this state: a rollback to disk leaves checkpoints of steps that it undid."""
        past = (rollback for rollback in self.history.rollbacks if rollback.at <= position)
        return not any(rollback.since < checkpoint < rollback.at for rollback in past)

    def _differences(self, scalars: dict[str, object]) -> list[str]:
        said = []
        wanted, saved = json.loads(json.dumps(dict(self.rebuild.identity))), scalars.get("identity")
        if saved != wanted:
            said.append("the run's settings are not those of its checkpoint")
        then, now = scalars.get("versions"), versions()
        if isinstance(then, dict):
            changed = [part for part in now if then.get(part) != now[part]]
            said += [f"since the checkpoint, {', '.join(changed)} changed"] if changed else []
        return said

    def _seeded(self, rank: int, position: int) -> RngState:
        seed_all(self.rebuild.seed, rank=rank, position=position)
        return capture_rng()

    def _walk(self, reached: Reached, position: int) -> None:
        state, total = reached.parts.state, position - reached.position
        undone = self.history.undone_in(range(reached.position, position))
        restore_rng(reached.generators[0])
        for at in range(reached.position, position):
            self.watch(at - (position - total), total)
            self._slow_down(reached.parts, at)
            if at in undone:
                pass
            elif at in self.history.refused:
                _refuse(reached.parts, self.history.refused[at])
            else:
                self._apply(reached, at)
            state.position = reached.position = at + 1
        if self.world == 1:
            reached.generators = [capture_rng()]
        self.watch(total, total)

    def _slow_down(self, parts: Parts, at: int) -> None:
        """As the run did when it rolled back before this batch."""
        factor, relief = self.history.rate_factor_at(at), parts.guard.relief
        if factor is not None and factor < relief.factor:
            relief.lower(factor / relief.factor)

    def _apply(self, reached: Reached, at: int) -> None:
        model, guard = reached.parts.state.model, reached.parts.guard
        before = list(reached.generators)
        model.train()
        leading = _Leading(model)
        passes = [one for rank in self._in_order(at) for one in self._passes(reached, rank, at, leading)]
        computes, parts = [compute for compute, _part in passes], [part for _compute, part in passes]
        try:
            outcome = guard.step(
                computes[0] if self.world == 1 else computes, shares=None if self.world == 1 else parts, position=at
            )
        except FOREIGN as error:
            reached.generators = before
            said = f"{type(error).__name__}: {str(error)[:200]}"
            reached.strayed(f"position {at}, which the run applied, can't be trained on now: {said}")
            return
        if outcome.applied:
            leading.put_back()
            reached.parts.state.step += 1
            reached.walked += 1
        else:
            reached.generators = before
            reached.strayed(f"position {at}, which the run applied, was refused on the way ({outcome.refusal})")

    def _in_order(self, at: int) -> list[int]:
        """Ranks of several passes first: of two sums of gradients it is all the same which one comes first."""
        return sorted(range(self.world), key=lambda rank: -len(self._share(rank, at)[0]))

    def _share(self, rank: int, at: int) -> tuple[NDArray[np.int64], float]:
        return share_of(self.rebuild.indices(at), rank, self.world, self.history.shares_at(at, self.world))

    def _passes(self, reached: Reached, rank: int, at: int, leading: _Leading) -> list[tuple[Compute, float]]:
        """What one rank computes for one batch, and each pass's part of the batch's loss."""
        samples, weight = self._share(rank, at)
        model = reached.parts.state.model
        even = piece_size(len(self.rebuild.indices(at)), self.world)  # a larger share takes several passes
        pieces = cut(samples, even, least=least_piece(model)) if even < len(samples) else [samples]

        def pass_over(piece: NDArray[np.int64]) -> Compute:
            def compute() -> Tensor:
                if self.world == 1:
                    return self.rebuild.loss(model, piece) * weight
                leading.turn_of(rank)
                restore_rng(reached.generators[rank])
                loss = self.rebuild.loss(model, piece) * weight
                reached.generators[rank] = capture_rng()
                return loss

            return compute

        parts = shares_of(pieces, len) if len(pieces) > 1 else [1.0]
        return [(pass_over(piece), part / self.world) for piece, part in zip(pieces, parts, strict=True)]


class _Leading:
    """Keeps the buffers as rank 0's forward pass left them: DDP hands them to the others before the next one."""

    def __init__(self, model: nn.Module) -> None:
        self._buffers = list(model.buffers())
        self._at_start = self._copied()
        self._kept: list[Tensor] | None = None
        self._rank: int | None = None

    def turn_of(self, rank: int) -> None:
        """The next forward pass is this rank's; all begin with the same buffers."""
        if rank != self._rank:
            self._ends()
            self._rank = rank
            self._set(self._at_start)

    def put_back(self) -> None:
        """The buffers are rank 0's."""
        self._ends()
        if self._kept is not None:  # one rank alone keeps them as its own pass left them
            self._set(self._kept)

    def _ends(self) -> None:
        if self._rank == 0:
            self._kept = self._copied()
        self._rank = None

    def _copied(self) -> list[Tensor]:
        return [buffer.detach().clone() for buffer in self._buffers]

    @torch.no_grad()
    def _set(self, values: list[Tensor]) -> None:
        for buffer, value in zip(self._buffers, values, strict=True):
            buffer.copy_(value)


def share_of(
    whole: NDArray[np.int64], rank: int, world: int, shares: Sequence[int] | None = None
) -> tuple[NDArray[np.int64], float]:
    """A rank's samples, and the weight of its loss in the mean over ranks, as the training loop splits a batch.

    Args:
        whole: samples of all ranks.
        rank: whose share.
        world: number of ranks.
        shares: of the ranks, in sixteenths; None: even ones.
    """
    mine = whole[rank::world] if shares is None else part(whole, shares, rank)
    return (mine if len(mine) else whole[:1]), len(mine) * world / len(whole)


def _refuse(parts: Parts, letter: DeadLetter) -> None:
    """What a refused step leaves behind: a lower loss scale, a lower learning rate."""
    guard = parts.guard
    if guard.scaler is not None and guard.scaler.is_enabled():
        guard.scaler.scale(
            torch.zeros((), device=next(parts.state.model.parameters()).device)
        )  # it is made on first use
    refusal = Refusal(letter.reason) if letter.reason in set(Refusal) else Refusal.LOSS
    guard.begin()
    guard.refuse(
        StepOutcome(letter.position, letter.sample_ids, letter.rank, refusal, float("nan"), float("nan"), float("nan"))
    )
