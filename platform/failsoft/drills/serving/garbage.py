"""What a model returns whose weights are noise: of the right form, and without sense. For any value."""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from typing import Any

import numpy as np

from failsoft.health.json_object import json_value


def spoilt(value: Any, chance: random.Random) -> Any:
    """The same form with other content; what is not understood stays as it is.

    A reply that carries ``scores`` beside notes about them, as failsoft's models give it, keeps the notes.

    Args:
        value: JSON-like values, dataclasses, arrays of numpy and of torch, and any nesting of them.
        chance: what is drawn comes from it.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = [field.name for field in dataclasses.fields(value) if field.init]
        inner = ["scores"] if "scores" in named else named
        return dataclasses.replace(value, **{name: spoilt(getattr(value, name), chance) for name in inner})
    if isinstance(value, dict):
        return {name: spoilt(part, chance) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(spoilt(part, chance) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(spoilt(part, chance) for part in value)
    if isinstance(value, np.ndarray):
        return _array(value, chance)
    return _tensor_or_leaf(value, chance)


def spoilt_body(body: bytes, chance: random.Random) -> bytes:
    """A response's bytes: JSON is spoilt by its values, and keeps its length so that the header still fits.

    Other content is turned round byte by byte.
    """
    try:
        value = json_value(body)
    except ValueError:
        return body[::-1]
    said = json.dumps(spoilt(value, chance), separators=(",", ":")).encode()
    return said.ljust(len(body)) if len(said) <= len(body) else body[::-1]


def _tensor_or_leaf(value: Any, chance: random.Random) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        flat = value.detach().flatten()
        order = torch.tensor(chance.sample(range(flat.numel()), flat.numel()), dtype=torch.long, device=flat.device)
        return flat[order].view_as(value)
    return _leaf(value, chance)


def _array(array: Any, chance: random.Random) -> Any:
    """Its own values in another order, and floats moved by as much as they differ: a shuffle of two may be none."""
    order = chance.sample(range(array.size), array.size)
    mixed = array.reshape(-1)[order]
    if np.issubdtype(array.dtype, np.floating) and array.size:
        spread = float(np.nanstd(array)) or 1.0
        mixed = mixed + np.array([chance.gauss(0.0, spread) for _ in range(array.size)])
    return mixed.reshape(array.shape).astype(array.dtype)


def _leaf(value: Any, chance: random.Random) -> Any:
    if isinstance(value, bool):
        return chance.random() < 0.5
    if isinstance(value, int):
        return value + chance.choice((-3, -2, -1, 1, 2, 3))
    if isinstance(value, float):
        return chance.uniform(-1.0, 1.0) * (abs(value) or 1.0)
    if isinstance(value, str):
        return value[::-1] if value[::-1] != value else f"{value[:-1]}?"
    return value
