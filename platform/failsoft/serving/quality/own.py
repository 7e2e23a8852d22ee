"""Any scores with a confidence of the user's own: embeddings, rankings, whatever knows how sure it is."""

# B items

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from failsoft.errors import ConfigError
from failsoft.serving.quality.limits import Limits, numbers
from failsoft.serving.seam import Judged, Measures, Quality, unusable


@dataclass(frozen=True, kw_only=True)
class OwnConfidence(Quality):
    """The outputs and their confidences are what two functions of the scores say.

    Whatever the functions say, a row of the scores' arrays that holds NaN or Inf is no answer, nor is a confidence
    outside 0 to 1.
    """

    confidence: Callable[[Any], npt.ArrayLike]
    """The confidences of a batch of scores, one for each item, 0 to 1. Make them honest: of the answers at 0.8 about
    four in five should be right."""
    outputs: Callable[[Any], Sequence[Any]]
    """The answers of the batch, one for each item, as JSON can carry them or as numpy has them."""
    same: Callable[[Any, Any], bool] | None = None
    """When two outputs agree; None: when they are equal. See :func:`same_top` for rankings."""
    limits: Limits = field(default_factory=Limits)

    def judge(self, scores: Any, *, rows: int, measures: Measures) -> list[Judged]:
        """See :class:`failsoft.serving.seam.Quality`."""
        del measures
        confidence_B, outputs = numbers(self.confidence(scores), rows=rows, ndim=1), list(self.outputs(scores))
        if confidence_B is None or len(outputs) != rows:
            return [unusable(f"confidences or outputs are not {rows}, one for each item")] * rows
        each = zip(outputs, confidence_B.tolist(), _finite_rows(scores, rows), strict=True)
        return [self._judged(*row) for row in each]

    def _judged(self, output: Any, confidence: float, finite: bool) -> Judged:  # noqa: FBT001 -- a row's three values
        if not finite:
            return unusable("scores that are not finite")
        if not 0.0 <= confidence <= 1.0:
            return unusable(f"confidence is {confidence}")
        return self.limits.judged(output, confidence)

    def agrees(self, one: Any, other: Any) -> bool:
        """As ``same`` says."""
        return bool(one == other) if self.same is None else bool(self.same(one, other))


def same_top(count: int, *, min_share: float = 0.5) -> Callable[[Any, Any], bool]:
    """Rankings agree when so large a share of their first ``count`` entries is in both.

    Raises:
        ConfigError: nothing, or everything, would agree.
    """
    if count < 1 or not 0.0 < min_share <= 1.0:
        raise ConfigError(f"count is {count} and min_share {min_share}; use at least 1, and above 0 up to 1")

    def agree(one: Sequence[Any], other: Sequence[Any]) -> bool:
        first, second = list(one)[:count], list(other)[:count]
        shared = sum(entry in second for entry in first)
        return shared >= min_share * max(len(first), len(second))

    return agree


def _finite_rows(scores: Any, rows: int) -> list[bool]:
    """For each row whether every array of numbers in the scores is finite there."""
    finite_B = np.ones(rows, dtype=bool)
    for array in _arrays(scores):
        if array.ndim and array.shape[0] == rows and array.dtype.kind == "f":
            finite_B &= np.isfinite(array).reshape(rows, -1).all(axis=1)
    return [bool(finite) for finite in finite_B]


def _arrays(scores: Any) -> list[npt.NDArray[Any]]:
    if isinstance(scores, np.ndarray):
        return [scores]
    parts = scores.values() if isinstance(scores, Mapping) else scores if isinstance(scores, list | tuple) else ()
    return [array for part in parts for array in _arrays(part)]
