"""How widely a model's answers spread: the numbers that move when a release reads or scales its input otherwise.

Three statistics over some texts: the standard deviation of all intent logits, and the mean and standard deviation of
the normalised entropy of the calibrated intent distribution. A temperature that is off moves the entropies and leaves
the logits; weights that are scaled or a text pipeline that differs moves the logits too.
"""
# B texts, C intents, R bootstrap rounds

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The three statistics; NaN where there is nothing finite to measure."""

    logit_std: float
    entropy_mean: float
    """Mean normalised entropy, 0 (certain) to 1 (uniform)."""
    entropy_std: float


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """A statistic's change against a reference, relative to the reference: 0.1 means ten percent larger."""

    name: str
    value: float
    low: float
    high: float
    """Ends of the bootstrap interval."""
    samples: int


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share of texts, or a difference of two such shares."""

    value: float
    low: float
    high: float
    """Ends of the bootstrap interval."""
    texts: int


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """How an interval is drawn: percentile bootstrap over texts (Efron & Tibshirani 1993, chapter 13)."""

    rounds: int = 1000
    confidence: float = 0.95
    seed: int = 7

    def __post_init__(self) -> None:
        """Refuse intervals that mean nothing."""
        if not 100 <= self.rounds <= 100_000:
            raise ConfigError(f"rounds is {self.rounds}; a bootstrap interval needs 100 or more, and no 100,000")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}; use 0 or more")
        if not 0.5 <= self.confidence < 1.0:
            raise ConfigError(f"confidence is {self.confidence}; use 0.5 up to, not including, 1 (0.95 is usual)")

    def resamples(self, count: int) -> NDArray[np.int64]:
        """Indices of ``rounds`` resamples of ``count`` texts, drawn with replacement; (R, B)."""
        return np.random.default_rng(self.seed).integers(0, count, size=(self.rounds, count))

    def interval(self, values_R: Floats) -> tuple[float, float]:
        """Both ends of the central interval; NaN when any value is."""
        tail = (1.0 - self.confidence) / 2.0
        low, high = np.quantile(values_R, [tail, 1.0 - tail])
        return float(low), float(high)


def share_of(counts_B: NDArray[np.bool_] | NDArray[np.integer], bootstrap: Bootstrap) -> Share:
    """The mean over texts of 0 or 1 (or of -1, 0, 1 for a difference of two); NaN without texts."""
    values_B = counts_B.astype(np.float64)
    if not len(values_B):
        return Share(value=np.nan, low=np.nan, high=np.nan, texts=0)
    low, high = bootstrap.interval(values_B[bootstrap.resamples(len(values_B))].mean(axis=1))
    return Share(value=float(values_B.mean()), low=low, high=high, texts=len(values_B))


def log_probabilities(logits_BC: NDArray[np.floating], temperature: float = 1.0) -> Floats:
    """Log-softmax of the logits divided by ``temperature``, in float64; rows that are not finite become NaN."""
    scaled_BC = np.asarray(logits_BC, dtype=np.float64) / temperature
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, which is what a broken row must stay
        shifted_BC = scaled_BC - scaled_BC.max(axis=1, keepdims=True)
        log_p_BC: Floats = shifted_BC - np.log(np.exp(shifted_BC).sum(axis=1, keepdims=True))
    return log_p_BC


def normalised_entropies(logits_BC: NDArray[np.floating], temperature: float = 1.0) -> Floats:
    """Entropy of each row's distribution over ``log C``: 0 for a certain answer, 1 for a uniform one; (B,)."""
    log_p_BC = log_probabilities(logits_BC, temperature)
    intents = log_p_BC.shape[1]
    if intents < 2:
        raise ConfigError(f"the logits have {intents} intent; a distribution needs at least 2")
    with np.errstate(invalid="ignore"):
        entropies_B: Floats = -(np.exp(log_p_BC) * log_p_BC).sum(axis=1) / np.log(intents)
    return entropies_B


def spread_of(logits_BC: NDArray[np.floating], entropies_B: Floats) -> Spread:
    """The statistics of some answers."""
    if not len(entropies_B):
        return Spread(logit_std=np.nan, entropy_mean=np.nan, entropy_std=np.nan)
    return Spread(
        logit_std=float(np.asarray(logits_BC, dtype=np.float64).std()),
        entropy_mean=float(entropies_B.mean()),
        entropy_std=float(entropies_B.std()),
    )


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a model said to some texts."""

    logits_BC: Floats
    entropies_B: Floats
    """Of the calibrated distribution."""

    def __post_init__(self) -> None:
        """Refuse halves that don't belong together."""
        if self.logits_BC.ndim != 2 or self.entropies_B.shape != self.logits_BC.shape[:1]:
            raise ConfigError(
                f"logits of shape {self.logits_BC.shape} don't go with entropies of shape {self.entropies_B.shape}; "
                "one row and one entropy for each text"
            )

    def __len__(self) -> int:
        return len(self.entropies_B)

    def spread(self) -> Spread:
        """The statistics of these answers."""
        return spread_of(self.logits_BC, self.entropies_B)


def deviations(now: Answers, reference: Answers, bootstrap: Bootstrap) -> tuple[Deviation, ...]:
    """Relative change of each statistic between two models that answered the *same* texts in the same order.

    Pairing matters: entropies of a good model are few large values among thousands of tiny ones, and an unpaired
    interval of their standard deviation is wider than 15 % at any size of set that people have.

    Raises:
        ConfigError: the two did not answer equally many texts.
    """
    count = len(now)
    if count != len(reference):
        raise ConfigError(f"{count} answers can't be paired with {len(reference)}; ask both the same texts")
    if not count:
        return tuple(Deviation(name=n, value=np.nan, low=np.nan, high=np.nan, samples=0) for n in _STATISTICS)
    everything, picks_RB = np.arange(count)[None, :], bootstrap.resamples(count)
    points, rounds = _ratios(now, reference, everything), _ratios(now, reference, picks_RB)
    return tuple(
        Deviation(name=name, value=float(points[name][0]), low=low, high=high, samples=count)
        for name in _STATISTICS
        for low, high in [bootstrap.interval(rounds[name])]
    )


_STATISTICS = ("logit_std", "entropy_mean", "entropy_std")


def _ratios(now: Answers, reference: Answers, picks_RB: NDArray[np.int64]) -> dict[str, Floats]:
    ours, theirs = _statistics(now, picks_RB), _statistics(reference, picks_RB)
    with np.errstate(divide="ignore", invalid="ignore"):  # a reference of 0 gives NaN or Inf, which no gate passes
        return {name: ours[name] / theirs[name] - 1.0 for name in _STATISTICS}


def _statistics(answers: Answers, picks_RB: NDArray[np.int64]) -> dict[str, Floats]:
    entropies_RB = answers.entropies_B[picks_RB]
    means_B = answers.logits_BC.mean(axis=1)
    centre = float(means_B.mean())
    squares_B = ((answers.logits_BC - centre) ** 2).mean(axis=1)
    shifts_R = (means_B - centre)[picks_RB].mean(axis=1)
    variances_R = np.maximum(squares_B[picks_RB].mean(axis=1) - shifts_R**2, 0.0)
    return {
        "logit_std": np.sqrt(variances_R),
        "entropy_mean": entropies_RB.mean(axis=1),
        "entropy_std": entropies_RB.std(axis=1),
    }
