"""Cost against size: a curve, and the exponent that fits it, with an interval. Pure.

``cost = a · size^b`` is a line in logarithms; b is its slope by least squares, and its interval that of a slope, by
Student's t. A constant part flattens the small end of a curve, so the slope between the last two sizes is told as well:
by it, and by the fit, a curve is judged.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from failsoft.training.fleet.study import student_t
from tests.benchmarks.outcome import in_words

_SLACK = 0.15
"""What noise of a busy machine may add to an exponent."""


@dataclass(frozen=True, kw_only=True)
class Exponent:
    """The slope in logarithms and its 95 % interval; without ends where two sizes are all there is."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One cost at several sizes."""

    name: str
    of: str
    """What the sizes count."""
    unit: str
    """Of the costs: ``s``, or ``bytes``."""
    sizes: tuple[float, ...]
    costs: tuple[float, ...]
    allowed: float
    """The exponent that is no surprise: 0 for what must not grow, 1 for what reads everything once."""
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse what no line goes through."""
        if len(self.sizes) != len(self.costs) or len(self.sizes) < 2:
            raise ValueError(f"{self.name}: {len(self.sizes)} sizes and {len(self.costs)} costs; give two or more each")
        if not all(value > 0.0 for value in (*self.sizes, *self.costs)):
            raise ValueError(f"{self.name}: sizes and costs are above 0; {self.sizes}, {self.costs}")

    @property
    def exponent(self) -> Exponent:
        """Of all sizes."""
        x = [math.log(size) for size in self.sizes]
        y = [math.log(cost) for cost in self.costs]
        slope, intercept = statistics.linear_regression(x, y)
        freedom = len(x) - 2
        if freedom < 1:
            return Exponent(value=slope, low=-math.inf, high=math.inf)
        rest = sum((b - slope * a - intercept) ** 2 for a, b in zip(x, y, strict=True))
        middle = statistics.fmean(x)
        half = student_t(0.975, freedom) * math.sqrt(rest / freedom / sum((a - middle) ** 2 for a in x))
        return Exponent(value=slope, low=slope - half, high=slope + half)

    @property
    def at_the_end(self) -> float:
        """The slope between the two largest sizes."""
        return math.log(self.costs[-1] / self.costs[-2]) / math.log(self.sizes[-1] / self.sizes[-2])

    @property
    def verdict(self) -> str:
        """``as expected``, ``grows faster``, or ``not decided`` where the noise hides it."""
        most = self.allowed + _SLACK
        if self.exponent.low > most:
            return "grows faster"
        return "as expected" if self.exponent.value <= most and not self.at_the_end > most + 0.35 else "not decided"

    def row(self) -> tuple[str, ...]:
        """For a table."""
        fit = self.exponent
        interval = f" ({fit.low:+.2f} to {fit.high:+.2f})" if math.isfinite(fit.low) else " (two sizes)"
        sizes = f"{self.sizes[0]:.3g} → {self.sizes[-1]:.3g} {self.of}"
        costs = f"{self.cost_in_words(self.costs[0])} → {self.cost_in_words(self.costs[-1])}"
        figures = (f"{fit.value:+.2f}{interval}", f"{self.at_the_end:+.2f}", f"{self.verdict}, {self.allowed:g}")
        return (self.name, sizes, costs, *figures)

    def cost_in_words(self, cost: float) -> str:
        """A cost in the unit that suits it."""
        return in_words(cost) if self.unit == "s" else f"{cost:.3g} {self.unit}"

    def as_json(self) -> dict[str, object]:
        """All of it as plain data."""
        fit = asdict(self.exponent)
        shown = {name: value if math.isfinite(value) else None for name, value in fit.items()}
        return asdict(self) | {"exponent": shown, "at_the_end": self.at_the_end, "verdict": self.verdict}


COLUMNS = ("cost", "sizes", "costs", "exponent (95 %)", "at the end", "verdict, allowed")


def cpu_s(run: Callable[[], object], *, times: int = 5, calls: int = 1) -> float:
    """The processor time of one call, the middle of several timings; a first call is not counted."""
    run()
    seconds = []
    for _ in range(times):
        began_s = time.process_time()
        for _ in range(calls):
            run()
        seconds.append((time.process_time() - began_s) / calls)
    return max(statistics.median(seconds), 1e-9)


def curve(
    name: str, of: str, sizes: Sequence[float], costs: Sequence[float], *, allowed: float, unit: str = "s"
) -> Curve:
    """One from lists, without the sizes that had no cost (NaN): they did not fit."""
    kept = [(size, cost) for size, cost in zip(sizes, costs, strict=True) if math.isfinite(cost)]
    left_out = [f"{size:.3g}" for size, cost in zip(sizes, costs, strict=True) if not math.isfinite(cost)]
    return Curve(
        name=name,
        of=of,
        unit=unit,
        sizes=tuple(float(size) for size, _ in kept),
        costs=tuple(cost for _, cost in kept),
        allowed=allowed,
        note=f"did not fit: {', '.join(left_out)}" if left_out else "",
    )
