"""Regression with an uncertainty: finite, sure enough, and where a healthy model's answers lie."""

# B items, K numbers of one item

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError
from failsoft.serving.quality.limits import Limits, numbers
from failsoft.serving.seam import Judged, Measures, Quality, unusable

_Float = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Regression(Quality):
    """The mean is the output: a number, or a list of them.

    Scores are a dict with ``mean`` and ``std``, each of shape (B,) or (B, K). The confidence is the probability that
    the truth lies within ``tolerance`` of the mean, if errors are normal with that deviation; of K numbers the least
    sure one speaks for all.
    """

    tolerance: float
    """An answer that is off by no more than this is right, in the output's own unit."""
    max_std: float | None = None
    """Above it nobody gets the answer; None: the confidence alone decides."""
    beyond_fraction: float = 0.1
    """A mean may lie outside the range of the release's healthy answers by this share of the range's width."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Refuse limits that everything or nothing can pass."""
        for name, value in (("tolerance", self.tolerance), ("max_std", self.max_std)):
            if value is not None and not 0.0 < value < math.inf:
                raise ConfigError(f"{name} is {value}; it is a distance in the output's unit, above 0")
        if not 0.0 <= self.beyond_fraction < math.inf:
            raise ConfigError(f"beyond_fraction is {self.beyond_fraction}; use 0 or more, 0.1 suits")

    def judge(self, scores: Any, *, rows: int, measures: Measures) -> list[Judged]:
        """See :class:`failsoft.serving.seam.Quality`. Without measured ranges the range is not looked at."""
        mean_BK, std_BK = _columns(scores, "mean", rows), _columns(scores, "std", rows)
        if mean_BK is None or std_BK is None or mean_BK.shape != std_BK.shape or not mean_BK.shape[1]:
            return [unusable(f"scores are no mean and std of {rows} items")] * rows
        confidence_B = _confidence(std_BK, self.tolerance)
        outputs = _outputs(scores["mean"])
        faults = self._faults(mean_BK, std_BK, measures)
        rows_of = zip(outputs, confidence_B, faults, strict=True)
        return [self.limits.judged(output, confidence, fault=fault) for output, confidence, fault in rows_of]

    def agrees(self, one: Any, other: Any) -> bool:
        """Within the tolerance of each other."""
        a, b = _as_numbers(one), _as_numbers(other)
        if a is None or b is None or a.shape != b.shape:
            return False
        return bool(np.all(np.abs(a - b) <= self.tolerance))

    def measure(self, scores: Any, *, rows: int) -> Measures:
        """The range of each of the K means."""
        mean_BK = _columns(scores, "mean", rows)
        if mean_BK is None or not np.isfinite(mean_BK).all():
            raise ConfigError("healthy inputs gave means that are not finite; look at the model before publishing it")
        low_K, high_K = mean_BK.min(axis=0), mean_BK.max(axis=0)
        ranges = {f"mean_low_{k}": float(low) for k, low in enumerate(low_K)}
        return ranges | {f"mean_high_{k}": float(high) for k, high in enumerate(high_K)}

    def _faults(self, mean_BK: _Float, std_BK: _Float, measures: Measures) -> list[str]:
        finite_B = (np.isfinite(mean_BK) & np.isfinite(std_BK) & (std_BK >= 0.0)).all(axis=1)
        low_K, high_K = self._range(mean_BK.shape[1], measures)
        inside_B = ((mean_BK >= low_K) & (mean_BK <= high_K)).all(axis=1)
        sure_B = (std_BK <= (math.inf if self.max_std is None else self.max_std)).all(axis=1)
        found: list[list[bool]] = np.stack([finite_B, sure_B, inside_B], axis=1).tolist()
        return [_fault(*row, max_std=self.max_std) for row in found]

    def _range(self, count: int, measures: Measures) -> tuple[_Float, _Float]:
        low_K = np.array([measures.get(f"mean_low_{k}", -math.inf) for k in range(count)])
        high_K = np.array([measures.get(f"mean_high_{k}", math.inf) for k in range(count)])
        slack_K = np.where(np.isfinite(high_K - low_K), (high_K - low_K) * self.beyond_fraction, 0.0)
        return low_K - slack_K, high_K + slack_K


def _fault(finite: bool, sure: bool, inside: bool, *, max_std: float | None) -> str:  # noqa: FBT001 -- three verdicts
    if not finite:
        return "mean or std is not finite"
    if not sure:
        return f"std is above {max_std}"
    return "" if inside else "the mean lies outside the range of the release's healthy answers"


def _columns(scores: Any, name: str, rows: int) -> _Float | None:
    given = scores.get(name) if isinstance(scores, Mapping) else None
    one = numbers(given, rows=rows, ndim=1)
    return numbers(given, rows=rows, ndim=2) if one is None else one[:, np.newaxis]


def _as_numbers(output: Any) -> _Float | None:
    """A rung may have answered anything."""
    try:
        return np.asarray(output, dtype=np.float64) if output is not None else None
    except (TypeError, ValueError, OverflowError):
        return None


def _outputs(mean: Any) -> list[Any]:
    listed: list[Any] = np.asarray(mean, dtype=np.float64).tolist()
    return listed


def _confidence(std_BK: _Float, tolerance: float) -> list[float]:
    """P(|error| <= tolerance) of a normal error; NaN stays NaN, and a deviation of 0 is certain."""
    with np.errstate(divide="ignore", invalid="ignore"):
        worst_B = tolerance / (std_BK.max(axis=1) * math.sqrt(2.0))
    return [math.erf(z) if z >= 0.0 else math.nan for z in worst_B.tolist()]
