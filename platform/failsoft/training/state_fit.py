"""Whether a saved state fits the live parts that it is to be loaded into. Judgement only; nothing is changed here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from failsoft.errors import IncompatibleArtifactError

MOMENTS = "optimizer/"
"""What names of saved moments begin with."""


def misfits(saved: Mapping[str, Tensor], live: Mapping[str, Tensor], *, prefix: str, convert: bool) -> list[str]:
    """What of a saved module does not fit the live one, in words; names come without ``prefix``.

    Args:
        saved: tensors by name.
        live: tensors by name.
        prefix: what all names begin with.
        convert: another dtype is no misfit. Without it, float64 weights would be rounded to float32 without a word.
    """
    wrong = [f"{name[len(prefix) :]} is missing" for name in sorted(live.keys() - saved.keys())]
    wrong += [f"{name[len(prefix) :]} is not in the model" for name in sorted(saved.keys() - live.keys())]
    both = sorted(live.keys() & saved.keys())
    wrong += [
        f"{name[len(prefix) :]} is {tuple(saved[name].shape)}, the model has {tuple(live[name].shape)}"
        for name in both
        if saved[name].shape != live[name].shape
    ]
    wrong += [
        f"{name[len(prefix) :]} is {_kind(saved[name])}, the model has {_kind(live[name])} (build the model in the "
        "dtype it was saved in, or load it with convert=True)"
        for name in both
        if not convert and saved[name].dtype != live[name].dtype
    ]
    return wrong


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def refuse_missing_moments(
    optimizer: Optimizer, tensors: Mapping[str, Tensor], *, promised: Iterable[str] | None
) -> None:
    """Refuse a saved optimizer some of whose moments are gone: it would start them from zero and say nothing.

    Args:
        optimizer: the live one.
        tensors: what was saved, by flat names.
        promised: names of all moments there were; None where the saved state is too old to say. Then parameters of one
            group and shape that have moments at all must have the same ones.

    Raises:
        IncompatibleArtifactError: naming what is missing.
    """
    gone = _uneven(optimizer, tensors) if promised is None else sorted(set(promised) - tensors.keys())
    if gone:
        more = f" and {len(gone) - 8} more" if len(gone) > 8 else ""
        raise IncompatibleArtifactError(
            f"moments of the optimizer are missing in the saved state: {', '.join(gone[:8])}{more}; go on from the "
            "checkpoint before it (failsoft ckpt ls), or use another run name to start afresh"
        )


def _uneven(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> list[str]:
    kinds: dict[int, set[str]] = {}
    for name in tensors:
        if name.startswith(MOMENTS):
            place, moment = name[len(MOMENTS) :].split("/", 1)
            kinds.setdefault(int(place), set()).add(moment)
    alike: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    numbered = [(number, each) for number, group in enumerate(optimizer.param_groups) for each in group["params"]]
    for index, (number, parameter) in enumerate(numbered):
        if kinds.get(index):
            alike.setdefault((number, tuple(parameter.shape)), []).append(index)
    return [
        f"{MOMENTS}{index}/{moment}"
        for fellows in alike.values()
        for index in fellows
        for moment in sorted(set().union(*(kinds[fellow] for fellow in fellows)) - kinds[index])
    ]


def refuse_other_optimizer(saved: list[dict[str, Any]], live: list[dict[str, Any]]) -> None:
    """A newer torch may know settings more, or fewer; one that knows others is another kind, whose moments do not fit.

    Raises:
        IncompatibleArtifactError: naming the settings that differ.
    """
    for then, now in zip(saved, live, strict=True):
        gone, new = then.keys() - now.keys() - {"initial_lr"}, now.keys() - then.keys() - {"initial_lr"}
        if gone and new:
            raise IncompatibleArtifactError(
                f"the saved state is of another optimizer: it has {', '.join(sorted(gone))}, this one has "
                f"{', '.join(sorted(new))}; use the optimizer it was trained with, or another run name to start afresh"
            )
