"""Tensors whose shards lie on several ranks (DTensor, under FSDP2): what this rank holds of them, and back.

Everything that keeps a state (RAM snapshots, checkpoints) works on what this rank holds, as plain tensors that share
the memory of the sharded ones; a description of the pieces, small JSON, goes with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from failsoft.errors import ConfigError
from failsoft.training.boxes import Box


@dataclass(frozen=True, kw_only=True)
class Shard:
    """What this rank holds of a sharded tensor."""

    shape: tuple[int, ...]
    """Of the whole tensor."""
    box: Box
    """This rank's."""
    mesh: tuple[int, ...]
    """Ranks in each dimension of the device mesh."""
    placements: tuple[str, ...]
    """By dimension of the mesh, in torch's words: ``S(0)`` is cut along dimension 0, ``R`` is alike."""
    first: bool
    """No rank before this one holds the same piece, so this one writes it."""

    @cached_property
    def plain(self) -> Mapping[str, Any]:
        """The same as :meth:`to_plain`, one object for all tensors that are cut alike: nobody may change it.

        It makes a comparison with the last state's descriptions one of addresses.
        """
        return self.to_plain()

    def to_plain(self) -> dict[str, Any]:
        """Small JSON that :meth:`from_plain` reads back."""
        return {
            "shape": list(self.shape),
            "offset": list(self.box.offset),
            "size": list(self.box.size),
            "mesh": list(self.mesh),
            "placements": list(self.placements),
            "first": self.first,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Shard:
        """A shard from plain data."""
        return cls(
            shape=tuple(plain["shape"]),
            box=Box(offset=tuple(plain["offset"]), size=tuple(plain["size"])),
            mesh=tuple(plain["mesh"]),
            placements=tuple(plain["placements"]),
            first=bool(plain["first"]),
        )


def is_sharded(tensor: Tensor) -> bool:
    """Whether it is one of many ranks' (a DTensor)."""
    return type(tensor) is not Tensor and hasattr(tensor, "to_local")


def has_shards(model: nn.Module) -> bool:
    """Whether the model lies in shards on several ranks, as ``fully_shard`` leaves it; it takes no DDP around it."""
    return any(is_sharded(parameter) for parameter in model.parameters())


@torch.no_grad()
def here(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor, as a plain one that shares its memory."""
    return _local(tensor)


@torch.no_grad()
def all_here(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same of many, by name: entering torch's mode once for each takes longer than all the rest."""
    return {name: _local(tensor) for name, tensor in tensors.items()}


def _local(tensor: Tensor) -> Tensor:
    return torch.as_tensor(tensor.to_local()) if hasattr(tensor, "to_local") else tensor


@torch.no_grad()
def shard_of(name: str, tensor: Tensor) -> Shard | None:
    """Which piece of the whole this rank holds; None of a plain tensor, which it holds alone.

    Raises:
        ConfigError: its parts must be added up first, or it is cut in a way that leaves no rectangle.
    """
    return _shard_of(name, tensor, _local(tensor)) if is_sharded(tensor) else None


def _shard_of(name: str, tensor: Tensor, held: Tensor) -> Shard:
    sharded: Any = tensor
    mesh, placements = sharded.device_mesh, sharded.placements
    found = _cut(sharded.shape, mesh, placements, tuple(mesh.get_coordinate() or (0,) * len(placements)))
    if found is None:
        raise ConfigError(f"{name} is only a part of a sum on each rank ({placements}); reduce it before it is kept")
    local = tuple(held.shape)
    if found.box.size != local:
        raise ConfigError(f"{name} is cut by {placements} into {local} here, where {found.box.size} was expected")
    return found


@lru_cache(maxsize=8192)
def _cut(shape: torch.Size, mesh: Any, placements: tuple[Any, ...], coordinate: tuple[int, ...]) -> Shard | None:
    """None of a part of a sum. Asked for each tensor of a state at each snapshot, and torch takes 100 µs for it."""
    from torch.distributed.tensor._utils import (  # noqa: PLC0415 -- over a second, only for who shards
        compute_local_shape_and_global_offset,
    )

    if any(placement.is_partial() for placement in placements):
        return None
    size, offset = compute_local_shape_and_global_offset(shape, mesh, placements)
    return Shard(
        shape=tuple(shape),
        box=Box(offset=tuple(offset), size=tuple(size)),
        mesh=tuple(mesh.shape),
        placements=tuple(_in_words(placement) for placement in placements),
        first=not any(place for place, how in zip(coordinate, placements, strict=True) if how.is_replicate()),
    )


def _in_words(placement: Any) -> str:
    return "R" if placement.is_replicate() else f"S({placement.dim})"


def like(parameter: Tensor, local: Tensor) -> Tensor:
    """A tensor that lies as the parameter does, over what this rank holds of it; shares its memory."""
    from torch.distributed.tensor import DTensor  # noqa: PLC0415 -- as above

    owner: Any = parameter
    return torch.as_tensor(
        DTensor.from_local(
            local,
            owner.device_mesh,
            owner.placements,
            run_check=False,
            shape=owner.shape,
            stride=owner.stride(),
        )
    )


def numbered(optimizer: Optimizer) -> list[Tensor]:
    """The optimizer's parameters, by the numbers that its state uses."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def moment_like(parameters: Sequence[Tensor], index: int, local: Tensor, plain: Mapping[str, Any] | None) -> Tensor:
    """A moment as the optimizer holds it.

    Args:
        parameters: by number.
        index: of the moment's parameter.
        local: what this rank holds of it.
        plain: description of its shard; None of a plain moment.
    """
    return local if plain is None or not is_sharded(parameters[index].data) else like(parameters[index], local)


@torch.no_grad()
def shards_in(
    tensors: Mapping[str, Tensor], held: Mapping[str, Tensor], optimizer: Optimizer, *, moments: str
) -> dict[str, Mapping[str, Any]]:
    """Descriptions of those tensors that are sharded, by name.

    Args:
        tensors: of a state.
        held: what this rank holds of each, by :func:`all_here`.
        optimizer: of the same state.
        moments: what names of its moments begin with; ``<moments><index>/<moment>``.

    Raises:
        ConfigError: one can't be kept.
    """
    found = {name: _shard_of(name, tensor, held[name]) for name, tensor in tensors.items() if is_sharded(tensor)}
    parameters = numbered(optimizer) if found else []
    for name in found:
        if name.startswith(moments):
            parameter: Any = parameters[int(name[len(moments) :].split("/", 1)[0])]
            moment: Any = tensors[name]
            if not is_sharded(parameter) or moment.shape != parameter.shape:
                raise ConfigError(
                    f"{name} is sharded, but not as its parameter is ({tuple(moment.shape)}, the parameter has "
                    f"{tuple(parameter.shape)}); use an optimizer whose moments are shaped like the parameters (AdamW, "
                    "SGD) with sharded models"
                )
    return {name: shard.plain for name, shard in found.items()}


def settled(*models: nn.Module | None) -> None:
    """Bring each parameter back to its shard, where a forward pass without a backward one left it whole.

    An average is looked at, too: what is read from or written to its whole weights is gone with its next forward pass.

    Args:
        models: of a state; None for one that it lacks.

    Raises:
        ConfigError: one is in FSDP1's wrapper, whose shards nothing here can tell from whole tensors.
    """
    for module in (module for model in models if model is not None for module in model.modules()):
        if type(module).__name__ == "FullyShardedDataParallel":
            raise ConfigError(
                "the model is in FullyShardedDataParallel (FSDP1), which hides what each rank holds; use "
                "torch.distributed.fsdp.fully_shard (FSDP2) instead"
            )
        reshard = getattr(module, "reshard", None)
        if callable(reshard):
            reshard()
