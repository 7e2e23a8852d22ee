"""Many rollouts at once, looked at after every answer: who is judged, when, and how.

Numpy finds the few looks at which a decision is possible at all; the product's own comparison judges those.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.health.sequential import Comparison, Tally, compare_arms, compare_with_rate

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
_CHUNK, _BLOCK = 250, 2500
_POINTS = (0.5, 0.25, 0.75, *(number / 32 for number in range(33)))
"""Where, between the rates that both arms show, a pair of rates is looked for that excludes neither."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is simulated: bad answers of the subject and of what stands in are independent, at these rates."""

    subject: float
    reference: float
    per_answer: int = 1
    """Answers of the stand-in for each of the subject's; 0: the reference is a known rate."""
    margin: float = 0.05
    alpha: float = 0.05
    answers: int = 10_000
    runs: int = 2_000
    seed: int = 11


@dataclass(frozen=True, kw_only=True)
class Found:
    """How the runs ended."""

    setting: Setting
    ends: dict[Comparison, list[int]]
    """After how many answers of the subject the first decision fell, by decision."""

    def share(self, decision: Comparison) -> float:
        """Of all runs."""
        return len(self.ends[decision]) / self.setting.runs

    def answers(self, decision: Comparison) -> tuple[int, int] | None:
        """Half of those that ended so, and 95 of 100 of them, needed no more answers than this; None: none did."""
        ends = sorted(self.ends[decision])
        return (int(median(ends)), ends[min(len(ends) - 1, int(0.95 * len(ends)))]) if ends else None

    def in_words(self, decision: Comparison) -> str:
        """As ``100.0 % (237, 412)``."""
        answers = self.answers(decision)
        return f"{self.share(decision):6.1%} " + (f"({answers[0]:,}, {answers[1]:,})" if answers else "")


def allowed(setting: Setting) -> float:
    """The share of runs that chance may let err when each errs with probability alpha: alpha and 3 standard errors."""
    return setting.alpha + 3 * math.sqrt(setting.alpha * (1 - setting.alpha) / setting.runs)


def first_decisions(setting: Setting, *sought: Comparison) -> Found:
    """Let every run go on until one of the decisions falls or its answers are used up, with a look after each."""
    ends: dict[Comparison, list[int]] = {decision: [] for decision in sought}
    for subject, other in _chunks(setting):
        for row in range(len(subject)):
            if (end := _first_of(subject[row], other[row], setting, sought)) is not None:
                ends[end[0]].append(end[1])
    return Found(setting=setting, ends=ends)


def ever_significant(setting: Setting, *, z: float = 1.645) -> float:
    """The share of runs in which a usual one-sided test at 5 % against the known reference, made after each answer from
    the 30th on, ever calls the subject worse.
    """
    totals, wrong = np.arange(1, setting.answers + 1), 0
    spread = np.sqrt(setting.reference * (1.0 - setting.reference) * totals)
    for subject, _ in _chunks(setting):
        wrong += int(((subject - setting.reference * totals) / spread >= z)[:, 30:].any(axis=1).sum())
    return wrong / setting.runs


def _chunks(setting: Setting) -> Iterator[tuple[Counts, Counts]]:
    """Bad answers so far, after each answer of the subject, of both arms."""
    rng, per_answer = np.random.default_rng(setting.seed), setting.per_answer
    for start in range(0, setting.runs, _CHUNK):
        shape = (min(_CHUNK, setting.runs - start), setting.answers)
        subject = rng.random(shape, np.float32) < setting.subject
        other: NDArray[Any] = rng.random(shape, np.float32) < setting.reference
        if per_answer != 1:
            other = rng.binomial(per_answer, setting.reference, shape) if per_answer else np.zeros(shape, int)
        yield np.cumsum(subject, axis=1), np.cumsum(other, axis=1)


def _first_of(
    subject: Counts, other: Counts, setting: Setting, sought: tuple[Comparison, ...]
) -> tuple[Comparison, int] | None:
    for start in range(0, setting.answers, _BLOCK):
        looks = np.arange(start, min(start + _BLOCK, setting.answers))
        looks = looks[_points_to(subject[looks], other[looks], looks + 1, setting, sought)]
        for index in _possible(subject, other, looks, setting):
            decision = _judge(int(subject[index]), int(other[index]), int(index) + 1, setting)
            if decision in sought:
                return decision, int(index) + 1
    return None


def _points_to(
    subject: Counts, other: Counts, total: Counts, setting: Setting, sought: tuple[Comparison, ...]
) -> NDArray[np.bool_]:
    """Whether what both arms show lies on the side of a decision that is sought."""
    reference = other / (total * setting.per_answer) if setting.per_answer else setting.reference
    above = subject / total > reference + setting.margin
    return np.where(above, Comparison.WORSE in sought, Comparison.NOT_WORSE in sought)


def _judge(subject: int, other: int, total: int, setting: Setting) -> Comparison:
    tally = Tally(bad=subject, total=total)
    if not setting.per_answer:
        return compare_with_rate(tally, setting.reference, margin=setting.margin, alpha=setting.alpha)
    stand_in = Tally(bad=other, total=total * setting.per_answer)
    return compare_arms(tally, stand_in, margin=setting.margin, alpha=setting.alpha)


def _possible(subject: Counts, other: Counts, looks: Counts, setting: Setting) -> Counts:
    """Looks at which the bounds may lie apart: no pair of rates tried here, ``margin`` apart, is within both."""
    if not setting.per_answer:
        ceiling = np.full(len(looks), setting.reference + setting.margin)
        return looks[_excluded(subject[looks], looks + 1, ceiling, -math.log(setting.alpha))]
    limit = -math.log(setting.alpha / 2)
    for point in _POINTS:
        if not len(looks):
            break
        total, others = looks + 1, (looks + 1) * setting.per_answer
        shown, border = subject[looks] / total, other[looks] / others + setting.margin
        rate = shown + point * (border - shown)
        out = _excluded(subject[looks], total, rate, limit)
        out |= _excluded(other[looks], others, rate - setting.margin, limit)
        looks = looks[out]
    return looks


def _excluded(bad: Counts, total: Counts, rate: Floats, limit: float) -> NDArray[np.bool_]:
    """Whether the evidence against a rate reaches the limit. Most are spared the logarithms: what it can be at most is
    ``total`` times the chi-squared distance, which is never below that of Kullback and Leibler.
    """
    far = total * (rate - bad / total) ** 2 >= limit * rate * (1.0 - rate)
    far[far] = _evidence(bad[far], total[far], rate[far]) >= limit
    return far


def _table(size: int) -> Floats:
    """ln n! for n below ``size``."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, size)))])


_LOG_FACTORIAL = _table(400_000)


def _evidence(bad: Counts, total: Counts, rate: Floats) -> Floats:
    """What :func:`failsoft.health.sequential.log_evidence_against` says, for many at once; impossible rates: inf."""
    good = total - bad
    mixture = _LOG_FACTORIAL[bad] + _LOG_FACTORIAL[good] - _LOG_FACTORIAL[total + 1]
    possible = np.clip(rate, 1e-300, 1.0 - 1e-16)
    found: Floats = mixture - bad * np.log(possible) - good * np.log1p(-possible)
    found[((rate <= 0.0) & (bad > 0)) | ((rate >= 1.0) & (good > 0))] = math.inf
    return found


def table(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    """Lines for people; the first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(["", title, *lines])
