"""Making what foreign code gives fit to travel: outputs for JSON, scores for a process without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel

from failsoft.serving.web.problems import whole

_AS_THEY_ARE = (bool, int, type(None))


def as_plain(value: Any) -> Any:
    """An output as JSON can carry it: numpy's numbers and arrays become numbers and lists, models become dicts.

    Half characters in a text become U+FFFD.

    Raises:
        ValueError: a number in it is NaN or infinite: such an output is no answer.
        TypeError: something in it has no place in JSON.
    """
    if type(value) is str:
        return value if value.isascii() else whole(value)
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, float | np.floating):
        return _finite(float(value))
    if isinstance(value, Mapping):
        return {whole(str(name)): as_plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(part) for part in value]
    return as_plain(_opened(value))


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"an output holds {value}, which is no answer")
    return value


def _opened(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, str | int):  # an enum's member, or another kind of them
        return str(value) if isinstance(value, str) else int(value)
    raise TypeError(f"an output holds a {type(value).__name__}; give numbers, texts, lists and dicts")


def without_tensors(scores: Any) -> Any:
    """Scores with every tensor made a numpy array, in mappings, lists and tuples too; all else as it is.

    A mapping of another class becomes a dict: such a class may be a model library's own, and would bring all of it,
    torch too, into the process that unpickles it.
    """
    if hasattr(scores, "detach"):
        tensor = scores.detach().cpu()
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    if isinstance(scores, Mapping):
        return {name: without_tensors(part) for name, part in scores.items()}
    if isinstance(scores, tuple) and hasattr(scores, "_make"):  # a named one
        return scores._make(map(without_tensors, scores))
    if type(scores) in (list, tuple):
        return type(scores)(without_tensors(part) for part in scores)
    return scores
