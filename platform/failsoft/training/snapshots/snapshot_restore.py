"""The way back from a snapshot: into the live tensors, in place, so that no second copy of a state is needed.

In place also means that addresses stay: what captured them (a CUDA graph, a view) sees the restored numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from failsoft.training.finite import dense_view
from failsoft.training.ranks import Ranks
from failsoft.training.rng import HeldRng
from failsoft.training.sharding import moment_like, numbered
from failsoft.training.snapshots.arena import Arena
from failsoft.training.snapshots.snapshot_layout import Division, Part, Slice, Slot
from failsoft.training.state import HELD, FlatState, TrainingState, unflatten

_OPTIMIZER = "optimizer/"


@dataclass(frozen=True, kw_only=True)
class Held:
    """One whole, healthy snapshot: this rank's part of it."""

    arena: Arena
    division: Division
    digest: str
    """Of what all ranks hold alike."""
    scalars: dict[str, Any]
    rng: HeldRng


def misfit(parts: Sequence[Part], live: Mapping[str, Tensor], optimizer: Optimizer, groups: Sequence[Any]) -> str:
    """Why a snapshot can't be put into live parts; "" when it can. Changes nothing.

    Args:
        parts: of the snapshot.
        live: tensors of the state now.
        optimizer: the live one.
        groups: parameter groups of the snapshot.
    """
    kept = {part.name: part.shape for part in parts if not part.name.startswith(_OPTIMIZER)}
    now = {name: tuple(tensor.shape) for name, tensor in live.items() if not name.startswith(_OPTIMIZER)}
    if kept != now:
        names = sorted(name for name in kept.keys() | now.keys() if kept.get(name) != now.get(name))
        return f"{', '.join(names[:8])} changed shape, came or went since the snapshot; take one after changing a model"
    sizes = [len(group["params"]) for group in groups], [len(group["params"]) for group in optimizer.param_groups]
    if sizes[0] != sizes[1]:
        return (
            f"the optimizer has parameter groups of {sizes[1]}, the snapshot of {sizes[0]}; take one after adding one"
        )
    return ""


def other_shards(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Which of the model's tensors this rank holds another piece of than it did; "" for none.

    Args:
        then: scalars of the snapshot.
        now: scalars of the live state.
    """
    before, after = (
        {name: shard for name, shard in (scalars.get(HELD) or {}).items() if not name.startswith(_OPTIMIZER)}
        for scalars in (then, now)
    )
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return f"this rank holds another piece of {', '.join(names[:8])} than it did" if names else ""


@torch.no_grad()
def put_back(
    held: Held, live: Mapping[str, Tensor], state: TrainingState, ranks: Ranks, *, with_counts: bool = False
) -> None:
    """Everything back as it was: all ranks together, after they agreed that each has the same snapshot and can.

    Args:
        held: stays as it is.
        live: tensors of the state now.
        state: its parts are changed.
        ranks: those that hold the shares.
        with_counts: also the counts of breaker and guard, as a restart does; a rollback keeps the live ones.
    """
    targets = {part.name: _target(part, live.get(part.name)) for part in held.division.parts}
    given = {name: tensor for name, tensor in targets.items() if not name.startswith(_OPTIMIZER) or tensor.ndim == 0}
    unflatten(FlatState(tensors=given, scalars=copy.deepcopy(held.scalars)), state, with_breaker=with_counts)
    _fill(held, targets, ranks)
    _hand_over(targets, state.optimizer, held.scalars.get(HELD) or {})
    held.rng.restore()


def _target(part: Part, live: Tensor | None) -> Tensor:
    """Where a part goes: the live tensor, or a new one for a moment that was forgotten or changed meanwhile."""
    same = live is not None and tuple(live.shape) == part.shape and live.dtype == part.dtype
    if live is not None and (same or not part.name.startswith(_OPTIMIZER)):
        return live
    stride = part.stride if part.dense else torch.empty(part.shape, device="meta").stride()
    return torch.empty_strided(part.shape, stride, dtype=part.dtype, device=part.device)


def _fill(held: Held, targets: Mapping[str, Tensor], ranks: Ranks) -> None:
    """Part by part in the same order on all ranks: from the own buffer, and from the ranks that keep the rest."""
    division, kept = held.division, _by_part(held.arena.slots)
    shares: dict[str, list[tuple[int, Slice]]] = {}
    for owner, share in enumerate(division.shares):
        for piece in share:
            shares.setdefault(piece.part.name, []).append((owner, piece))
    for part in division.parts:
        numbers, finish = _landing(part, targets[part.name])
        for slot in kept.get(part.name, ()):
            numbers[slot.slice.start : slot.slice.stop].copy_(held.arena.numbers(slot))
        for owner, piece in shares.get(part.name, ()):
            ranks.broadcast_(numbers[piece.start : piece.stop], owner)
        finish()


def _landing(part: Part, target: Tensor) -> tuple[Tensor, Callable[[], object]]:
    """One-dimensional numbers in the order in which they are kept, and what brings them to the target afterwards."""
    dense = dense_view(target)
    as_kept = tuple(target.stride()) == part.stride if part.dense else target.is_contiguous()
    if dense is not None and as_kept and target.dtype == part.dtype:
        return dense, lambda: None
    numbers = torch.empty(part.numel, dtype=part.dtype, device=target.device)
    return numbers, lambda: target.copy_(part.shaped(numbers))


def _by_part(slots: Sequence[Slot]) -> dict[str, list[Slot]]:
    by_part: dict[str, list[Slot]] = {}
    for slot in slots:
        by_part.setdefault(slot.slice.part.name, []).append(slot)
    return by_part


def _hand_over(targets: Mapping[str, Tensor], optimizer: Optimizer, shards: Mapping[str, Any]) -> None:
    """Give the optimizer its moments as they are: ``load_state_dict`` would copy them, and cast them to the weights."""
    parameters = numbered(optimizer)
    for key, tensor in targets.items():
        if key.startswith(_OPTIMIZER):
            index, name = key[len(_OPTIMIZER) :].split("/", 1)
            moment = moment_like(parameters, int(index), tensor, shards.get(key))
            optimizer.state[parameters[int(index)]][name] = moment
