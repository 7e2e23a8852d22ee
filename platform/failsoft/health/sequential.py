"""Bounds on a rate that stay valid however often one looks.

Confidence sequences for a Bernoulli rate from the Beta-binomial mixture martingale (H. Robbins, "Statistical methods
related to the law of the iterated logarithm", 1970; Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform, nonparametric,
nonasymptotic confidence sequences", Annals of Statistics 2021, arXiv 1810.08240). With probability at least
``1 - alpha`` the true rate lies inside *at every sample size at once*, so peeking after each answer costs nothing. The
e-value of two arms divides the mixture by the best that the claim allows (Wasserman, Ramdas, Balakrishnan, "Universal
inference", PNAS 2020, arXiv 1912.11436). A fixed-size bound (``binomial_tail``) is here too, for the one place that
looks at a size chosen beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from failsoft.errors import ConfigError


class Comparison(StrEnum):
    """What the evidence says about a subject's bad rate against a reference."""

    NOT_WORSE = "not worse"
    WORSE = "worse"
    UNDECIDED = "undecided"
    """Too little evidence, or evidence that is not a number: hold, never pass."""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """``bad`` out of ``total`` independent outcomes."""

    bad: int
    total: int

    def __post_init__(self) -> None:
        """Refuse impossible counts."""
        if not 0 <= self.bad <= self.total:
            raise ConfigError(f"a tally of {self.bad} bad out of {self.total} is impossible")


def log_evidence_against(rate: float, tally: Tally) -> float:
    """Natural log of the mixture e-value against "the true rate is ``rate``".

    If that is true, it stays below ``log(1/alpha)`` for ever with probability 1 - alpha. The mixture is uniform over
    rates: e = Beta(1+bad, 1+good) / (rate^bad * (1-rate)^good).
    """
    good = tally.total - tally.bad
    mixture = math.lgamma(1 + tally.bad) + math.lgamma(1 + good) - math.lgamma(2 + tally.total)
    return mixture - _log_likelihood(rate, tally.bad, good)


def _log_likelihood(rate: float, bad: int, good: int) -> float:
    if (rate <= 0.0 and bad) or (rate >= 1.0 and good):
        return -math.inf
    likelihood = bad * math.log(rate) if bad else 0.0
    return likelihood + (good * math.log1p(-rate) if good else 0.0)


def rate_bounds(tally: Tally, *, alpha: float) -> tuple[float, float]:
    """The always-valid ``1 - alpha`` confidence interval for the bad rate, as fractions; (0, 1) without evidence."""
    if not 0.0 < alpha < 1.0:
        raise ConfigError(f"alpha is {alpha}; an error probability lies strictly between 0 and 1")
    if not tally.total:
        return 0.0, 1.0
    limit = -math.log(alpha)
    centre = tally.bad / tally.total
    return _edge(tally, limit, inside=centre, outside=0.0), _edge(tally, limit, inside=centre, outside=1.0)


def _edge(tally: Tally, limit: float, *, inside: float, outside: float) -> float:
    """Bisect for the rate between ``inside`` and ``outside`` where the evidence against it reaches ``limit``."""
    if log_evidence_against(outside, tally) < limit:
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if log_evidence_against(middle, tally) >= limit else (middle, outside)
    return outside


def compare_with_rate(subject: Tally, reference_rate: float, *, margin: float, alpha: float) -> Comparison:
    """Is the subject's bad rate at most ``reference_rate + margin``? For a subject without a live stand-in model."""
    ceiling = reference_rate + margin
    low, high = rate_bounds(subject, alpha=alpha)
    if high <= ceiling:
        return Comparison.NOT_WORSE
    return Comparison.WORSE if low > ceiling else Comparison.UNDECIDED


def compare_arms(subject: Tally, stand_in: Tally, *, margin: float, alpha: float) -> Comparison:
    """Is the subject's bad rate at most the stand-in's plus ``margin``? Each side gets half of ``alpha``."""
    subject_low, subject_high = rate_bounds(subject, alpha=alpha / 2)
    stand_in_low, stand_in_high = rate_bounds(stand_in, alpha=alpha / 2)
    if subject_high <= stand_in_low + margin:
        return Comparison.NOT_WORSE
    return Comparison.WORSE if subject_low > stand_in_high + margin else Comparison.UNDECIDED


def log_evidence_of_worse(subject: Tally, reference: Tally | float, *, margin: float = 0.0) -> float:
    """Natural log of the e-value against "the subject's bad rate is at most the reference's plus ``margin``".

    Of all pairs of rates that this allows the one counts that fits best, so if it is true, the e-value ever reaches
    1/alpha with probability alpha at most. Against another arm the e-values of both arms multiply; a plain rate is
    taken as known. 0 (an e-value of 1) without evidence; NaN for a reference that is not a number.
    """
    if not subject.total:
        return 0.0
    rate = subject.bad / subject.total
    if isinstance(reference, float):
        ceiling = reference + margin
        return ceiling if math.isnan(ceiling) else log_evidence_against(max(0.0, min(rate, ceiling)), subject)
    if not reference.total:
        return 0.0
    best = reference.bad / reference.total
    if rate > best + margin:
        best = _best_border(subject, reference, margin)
        rate = best + margin
    return log_evidence_against(min(rate, 1.0), subject) + log_evidence_against(best, reference)


def _best_border(subject: Tally, reference: Tally, margin: float) -> float:
    """The reference's rate that fits both tallies best if the subject's is larger by just ``margin``."""
    low, high = reference.bad / reference.total, subject.bad / subject.total - margin
    for _ in range(60):
        rate = (low + high) / 2
        low, high = (rate, high) if _slope(subject, rate + margin) + _slope(reference, rate) > 0.0 else (low, rate)
    return (low + high) / 2


def _slope(tally: Tally, rate: float) -> float:
    """How fast the log likelihood grows with the rate; at the ends without bound, if there is any such outcome."""
    good = tally.total - tally.bad
    up = (tally.bad / rate if rate > 0.0 else math.inf) if tally.bad else 0.0
    down = (good / (1.0 - rate) if rate < 1.0 else math.inf) if good else 0.0
    return up - down


def samples_needed(reference_rate: float, *, margin: float, alpha: float, cap: int = 1_000_000) -> int:
    """How many answers ``compare_with_rate`` needs to pass a subject that is exactly as good as its reference.

    Returns ``cap`` when even that many would not do, so that callers can say so.
    """
    low, high = 1, cap
    while low < high:
        middle = (low + high) // 2
        tally = Tally(bad=math.ceil(reference_rate * middle), total=middle)
        passed = compare_with_rate(tally, reference_rate, margin=margin, alpha=alpha) is Comparison.NOT_WORSE
        low, high = (low, middle) if passed else (middle + 1, high)
    return low


def samples_needed_against(stand_in: Tally, *, margin: float, alpha: float, cap: int = 1_000_000) -> int:
    """How many answers ``compare_arms`` needs to pass a subject exactly as good as what is known of its stand-in.

    Returns ``cap`` when even that many would not do: then more answers of the stand-in are needed first.
    """
    rate = stand_in.bad / stand_in.total if stand_in.total else 0.0
    low, high = 1, cap
    while low < high:
        middle = (low + high) // 2
        tally = Tally(bad=math.ceil(rate * middle), total=middle)
        passed = compare_arms(tally, stand_in, margin=margin, alpha=alpha) is Comparison.NOT_WORSE
        low, high = (low, middle) if passed else (middle + 1, high)
    return low


def binomial_tail(at_least: int, total: int, rate: float) -> float:
    """P(Binomial(total, rate) >= at_least): for one look at a size chosen beforehand."""
    if at_least <= 0:
        return 1.0
    log_rate, log_rest = (math.log(rate) if rate > 0 else -math.inf), (math.log1p(-rate) if rate < 1 else -math.inf)
    tail = 0.0
    for count in range(at_least, total + 1):
        rest = total - count
        choose = math.lgamma(total + 1) - math.lgamma(count + 1) - math.lgamma(rest + 1)
        term = math.exp(choose + count * log_rate + (rest * log_rest if rest else 0.0))
        tail += term
        if count > total * rate and term <= tail * 1e-12:  # past the mode the terms only shrink, also below any float
            break
    return min(tail, 1.0)


def exact_lower_bound(tally: Tally, *, alpha: float) -> float:
    """The rate that one is ``1 - alpha`` sure to be above: Clopper and Pearson, Biometrika 1934, one-sided.

    It is above a limit exactly when ``binomial_tail`` at that limit is below ``alpha``. 0 without a bad outcome.
    """
    if not 0.0 < alpha < 1.0:
        raise ConfigError(f"alpha is {alpha}; an error probability lies strictly between 0 and 1")
    if not tally.bad:
        return 0.0
    low, high = 0.0, tally.bad / tally.total
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_tail(tally.bad, tally.total, middle) <= alpha else (low, middle)
    return low
