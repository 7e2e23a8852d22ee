"""Gates over what a release is worth: honest confidences, no worse than what serves now, and not too large."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from failsoft.health.sequential import Comparison, Tally, compare_arms, rate_bounds, samples_needed
from failsoft.release.policy import GatePolicy
from failsoft.release.report import GateResult


def judge_calibration(error: float, texts: int, policy: GatePolicy) -> GateResult:
    """Do the confidences that callers get mean what they say?"""
    limit = policy.max_calibration_error
    return GateResult(
        name="calibration error",
        passed=texts >= policy.min_samples and error <= limit,
        value=error,
        limit=limit,
        why=f"the mean gap between confidence and accuracy on {texts} validation texts is {error:.2%}, at most "
        f"{limit:.0%} allowed",
    )


def judge_temperature(recorded: float, fitted: float, texts: int, policy: GatePolicy) -> GateResult:
    """Is the temperature the one that the release's own evidence asks for? ``fitted``: on that evidence, just now.

    A temperature that is off in calibration, evidence, baseline and golden inputs alike shows in none of them.
    """
    limit, off = policy.max_temperature_off, fitted / recorded - 1.0
    return GateResult(
        name="calibration as fitted again",
        passed=texts >= policy.min_samples and -limit <= off <= limit,
        value=off,
        limit=limit,
        why=f"the temperature is {recorded:.4g}, the recorded logits of {texts} texts ask for {fitted:.4g}; at most "
        f"{limit:.0%} apart allowed",
    )


def judge_accuracy(
    right_B: NDArray[np.bool_], served_right_B: NDArray[np.bool_], policy: GatePolicy, *, against: str
) -> GateResult:
    """Is it no worse than the served release, on texts that both answered and neither was trained on?

    Both answer the same texts, so only those that one has right and the other wrong tell them apart. Their two shares
    are bounded by the confidence sequence of the rollout (:func:`failsoft.health.sequential.compare_arms`; each side
    has half of alpha, so the two need not be independent). It is valid however often one asks: a release may be gated
    again with more texts. What it can't decide fails.
    """
    lost = Tally(bad=int((~right_B & served_right_B).sum()), total=len(right_B))
    won = Tally(bad=int((right_B & ~served_right_B).sum()), total=len(right_B))
    margin, alpha = policy.accuracy_margin, policy.accuracy_alpha
    verdict = compare_arms(lost, won, margin=margin, alpha=alpha)
    worst = rate_bounds(lost, alpha=alpha / 2)[1] - rate_bounds(won, alpha=alpha / 2)[0]
    needed = samples_needed(lost.bad / max(lost.total, 1), margin=margin, alpha=alpha / 2)
    decided = {
        Comparison.NOT_WORSE: f"; {needed} texts were needed",
        Comparison.UNDECIDED: f"; undecided, which fails: some {needed} texts would decide",
        Comparison.WORSE: "; it is surely worse",
    }[verdict]
    return GateResult(
        name=f"accuracy not worse than {against}",
        passed=verdict is Comparison.NOT_WORSE and lost.total >= policy.min_samples,
        value=worst,
        limit=margin,
        why=f"of {lost.total} texts {lost.bad} are wrong now and right {against}, {won.bad} the other way: it is worse "
        f"by at most {worst:.2%} (always-valid, alpha {alpha:g}), less than {margin:.1%} needed{decided}",
    )


def judge_size(files: Sequence[int], policy: GatePolicy) -> GateResult:
    """Does it fit where it has to go? ``files`` are sizes in bytes."""
    limit, total_mb = policy.max_size_mb, sum(files) / 1e6
    return GateResult(
        name="size",
        passed=bool(files) and total_mb <= limit,
        value=total_mb,
        limit=limit,
        why=f"{len(files)} files hold {total_mb:.2f} MB, at most {limit:g} MB allowed",
    )
