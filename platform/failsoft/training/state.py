"""Everything that a training step changes, as named tensors and small JSON, and back.

RAM snapshots and disk checkpoints both take this form, so what one restores the other does too. Names of tensors:
``model/<parameter or buffer>`` (also non-persistent buffers; tied weights once), ``ema/<the same>``,
``optimizer/<index>/<moment>``. Of a sharded tensor (DTensor, under FSDP2) it is this rank's shard, a plain tensor; the
scalar ``held_shards`` says which piece of the whole that is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from failsoft.errors import ConfigError, IncompatibleArtifactError
from failsoft.training.finite import first_ill
from failsoft.training.sharding import all_here, here, moment_like, numbered, settled, shards_in
from failsoft.training.state_fit import misfits, refuse_other_optimizer

_MODEL = "model/"
_OPTIMIZER = "optimizer/"
_EMA = "ema/"
HELD = "held_shards"
"""Among the scalars: by name of each sharded tensor, what this rank holds of it. Absent where none is sharded."""


class Stateful(Protocol):
    """A part whose state is small JSON."""

    def state_dict(self) -> dict[str, Any]:
        """The state now."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take a state on."""
        ...


@runtime_checkable
class Rewindable(Stateful, Protocol):
    """A part that stays as it is when the state goes back, and wants to know what it was then."""

    def rewound(self, then: Mapping[str, Any] | None) -> None:
        """The state is an older one again; ``then`` is what this part's ``state_dict`` said at that moment."""
        ...


@dataclass(kw_only=True)
class TrainingState:
    """The moving parts of a run."""

    model: nn.Module
    """The bare model, not its DDP wrapper."""
    optimizer: Optimizer
    scheduler: LRScheduler | None = None
    scaler: GradScaler | None = None
    breaker: Stateful | None = None
    """Counts of refused steps; restored from disk, kept through a rollback."""
    ema: nn.Module | None = None
    """Averaged weights (``torch.optim.swa_utils.AveragedModel``)."""
    guard: Stateful | None = None
    """The guard's recent levels and the relief of the learning rate; restored from disk, kept through a rollback."""
    memory: Stateful | None = None
    """The memory ladder's rung and patience; restored from disk, kept through a rollback."""
    samples: Stateful | None = None
    """How many samples something stood in for; restored from disk, kept through a rollback."""
    look: Stateful | None = None
    """Whether a look at the model is owed; restored from disk, kept through a rollback."""
    position: int = 0
    """Global batches consumed since the start of the run, refused ones included."""
    step: int = 0
    """Updates applied."""


@dataclass(frozen=True, kw_only=True)
class FlatState:
    """A state in the form that is copied and written."""

    tensors: dict[str, Tensor]
    scalars: dict[str, Any]

    @property
    def shards(self) -> Mapping[str, Any]:
        """Of each sharded tensor, what this rank holds, as :meth:`failsoft.training.sharding.Shard.to_plain` says."""
        return dict(self.scalars.get(HELD) or {})


def flatten(state: TrainingState) -> FlatState:
    """The state as it is now. Tensors are references, not copies.

    Raises:
        ConfigError: the scheduler or optimizer holds something that JSON cannot say, or a tensor is sharded in a way
            that can't be kept.
    """
    settled(state.model, state.ema)
    moments, groups, rest = _flat_optimizer(state.optimizer)
    scalars = {
        "position": state.position,
        "step": state.step,
        "optimizer_groups": groups,
        "optimizer_scalars": rest,
        "scheduler": None if state.scheduler is None else state.scheduler.state_dict(),
        "scaler": None if state.scaler is None else state.scaler.state_dict(),
        "breaker": None if state.breaker is None else state.breaker.state_dict(),
        "guard": None if state.guard is None else state.guard.state_dict(),
        "memory": None if state.memory is None else state.memory.state_dict(),
        "samples": None if state.samples is None else state.samples.state_dict(),
        "look": None if state.look is None else state.look.state_dict(),
    }
    try:
        plain = dict(json.loads(json.dumps(scalars)))
    except TypeError as error:
        raise ConfigError(
            f"the training state holds what JSON cannot say: {error}; use a scheduler of plain numbers"
        ) from error
    averages = {} if state.ema is None else module_tensors(state.ema, _EMA)
    tensors = model_tensors(state.model) | averages | moments
    held = all_here(tensors)
    shards = shards_in(tensors, held, state.optimizer, moments=_OPTIMIZER)
    return FlatState(tensors=held, scalars=plain | {HELD: shards} if shards else plain)


def unflatten(flat: FlatState, into: TrainingState, *, with_breaker: bool, convert: bool = False) -> None:
    """Put a flat state into the live parts; ``flat`` itself is copied from and stays as it is.

    Args:
        flat: what :func:`flatten` gave.
        into: parts of the same shapes.
        with_breaker: also take on the counts of breaker, guard, memory ladder and samples (a restart does, a rollback
            keeps the live ones). A breaker that has a method ``rewound`` is shown its older counts instead.
        convert: take tensors of another dtype on, in the live model's; without it they are refused.

    Raises:
        IncompatibleArtifactError: names, shapes or dtypes of the model's tensors differ; nothing was changed.
    """
    load_model_tensors(into.model, flat.tensors, convert=convert)
    _load_optimizer(into.optimizer, flat)
    if into.ema is not None:
        _load_average(into.ema, into.model, flat.tensors, convert=convert)
    scalars = flat.scalars
    parts: dict[str, Any] = {"scheduler": into.scheduler, "scaler": into.scaler}
    if with_breaker:
        parts |= {"breaker": into.breaker, "guard": into.guard, "memory": into.memory}
        parts |= {"samples": into.samples, "look": into.look}
    elif isinstance(into.breaker, Rewindable):
        into.breaker.rewound(scalars["breaker"])
    for key, part in parts.items():
        if part is not None and scalars.get(key) is not None:
            part.load_state_dict(_like(scalars[key], part.state_dict()))
    into.position, into.step = int(scalars["position"]), int(scalars["step"])


def own_names(state: TrainingState) -> frozenset[str]:
    """Names of the tensors that may differ between ranks: buffers, which DDP evens out before a forward pass only."""
    modules = {_MODEL: state.model, _EMA: state.ema}
    return frozenset(
        f"{prefix}{name}"
        for prefix, module in modules.items()
        if module is not None
        for name, _ in module.named_buffers()
    )


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and all buffers by name, detached, not copied."""
    return module_tensors(model, _MODEL)


def module_tensors(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    """Parameters and all buffers by name below ``prefix``, detached, not copied."""
    named = dict(module.named_parameters()) | dict(module.named_buffers())
    return {f"{prefix}{name}": tensor.detach() for name, tensor in named.items()}


def load_model_tensors(model: nn.Module, tensors: Mapping[str, Tensor], *, convert: bool = False) -> None:
    """Copy saved parameters and buffers into a model, in place; tensors of other parts are passed over.

    Args:
        model: to load into.
        tensors: what was saved, by flat names.
        convert: take tensors of another dtype on, in the model's; without it they are refused.

    Raises:
        IncompatibleArtifactError: naming what is missing, unknown, or of another shape or dtype; nothing was changed.
    """
    _load_module(model, tensors, _MODEL, convert=convert)


def _load_average(ema: nn.Module, model: nn.Module, tensors: Mapping[str, Tensor], *, convert: bool) -> None:
    """The saved average; where an older run had none, it starts from the restored weights, as a new one would."""
    if any(name.startswith(_EMA) for name in tensors):
        _load_module(ema, tensors, _EMA, convert=convert)
        return
    fresh = {f"{_EMA}module.{name[len(_MODEL) :]}": tensor for name, tensor in model_tensors(model).items()}
    fresh |= {name: torch.zeros_like(tensor) for name, tensor in module_tensors(ema, _EMA).items() if name not in fresh}
    _load_module(ema, fresh, _EMA, convert=True)


@torch.no_grad()
def _load_module(module: nn.Module, tensors: Mapping[str, Tensor], prefix: str, *, convert: bool) -> None:
    live = {name: here(tensor) for name, tensor in module_tensors(module, prefix).items()}
    saved = {name: here(tensor) for name, tensor in tensors.items() if name.startswith(prefix)}
    wrong = misfits(saved, live, prefix=prefix, convert=convert)
    if wrong:
        more = f" and {len(wrong) - 8} more" if len(wrong) > 8 else ""
        raise IncompatibleArtifactError(
            f"the saved state does not fit the model: {'; '.join(wrong[:8])}{more}; use the recipe it was trained "
            "with, or another run name to start afresh"
        )
    for name, tensor in live.items():
        tensor.copy_(saved[name])


def first_unhealthy(tensors: Mapping[str, Tensor]) -> str | None:
    """Name of the first tensor that is not finite; None when all are. One host sync for all devices when all are.

    Of a sharded tensor (DTensor, under FSDP2) the shard of this rank counts, of a sparse one its values.
    """
    return first_ill({name: _numbers_of(here(tensor)) for name, tensor in tensors.items()})


def _numbers_of(tensor: Tensor) -> Tensor:
    if tensor.layout is torch.strided:
        return tensor
    return tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()


def _flat_optimizer(optimizer: Optimizer) -> tuple[dict[str, Tensor], list[dict[str, Any]], dict[str, Any]]:
    packed = optimizer.state_dict()
    entries = {f"{_OPTIMIZER}{i}/{name}": value for i, slot in packed["state"].items() for name, value in slot.items()}
    tensors = {name: value for name, value in entries.items() if isinstance(value, Tensor)}
    moments = {name: value.detach() if value.requires_grad else value for name, value in tensors.items()}
    rest = {name: value for name, value in entries.items() if not isinstance(value, Tensor)}
    return moments, packed["param_groups"], rest


def _load_optimizer(optimizer: Optimizer, flat: FlatState) -> None:
    slots: dict[int, dict[str, Any]] = {}
    copies = {name: tensor.clone() for name, tensor in flat.tensors.items() if name.startswith(_OPTIMIZER)}
    parameters, shards = numbered(optimizer), flat.shards
    for key, value in (copies | flat.scalars["optimizer_scalars"]).items():
        index, name = key[len(_OPTIMIZER) :].split("/", 1)
        slots.setdefault(int(index), {})[name] = (
            moment_like(parameters, int(index), value, shards.get(key)) if isinstance(value, Tensor) else value
        )
    live_groups = optimizer.state_dict()["param_groups"]
    saved_groups = flat.scalars["optimizer_groups"]
    sizes = [len(group["params"]) for group in live_groups], [len(group["params"]) for group in saved_groups]
    if sizes[0] != sizes[1]:
        raise IncompatibleArtifactError(
            f"the optimizer has parameter groups of {sizes[0]}, the saved state of {sizes[1]}"
        )
    refuse_other_optimizer(saved_groups, live_groups)
    groups = [_like(saved, live) for saved, live in zip(saved_groups, live_groups, strict=True)]
    optimizer.load_state_dict({"state": slots, "param_groups": groups})


def _like(saved: dict[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """JSON turned tuples into lists and numbers that were keys into text; turn them back as the live part has them."""
    return {key: _as_live(value, live.get(key)) for key, value in saved.items()}


def _as_live(saved: Any, live: Any) -> Any:
    if isinstance(live, tuple):
        return tuple(saved)
    if isinstance(live, list) and len(live) == len(saved):
        return [_as_live(value, own) for value, own in zip(saved, live, strict=True)]
    if not isinstance(live, Mapping):
        return saved
    keys = {str(key): key for key in live}
    back = {keys.get(key, key): _as_live(value, live.get(keys.get(key))) for key, value in saved.items()}
    return Counter(back) if isinstance(live, Counter) else back  # MultiStepLR counts its milestones, by number
