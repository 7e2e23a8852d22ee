"""Gates over what a release can read of the texts that callers send; what is too little to decide fails."""

from __future__ import annotations

import math

from failsoft.release.coverage import Coverage, Recurring, Rise
from failsoft.release.policy import GatePolicy
from failsoft.release.report import GateResult


def judge_readable(coverage: Coverage, policy: GatePolicy, *, of: str) -> GateResult:
    """Do the texts consist of what the model has ids for? ``of`` names them: validation or traffic."""
    limit, value, low = policy.min_readable_fraction, coverage.readable_fraction, coverage.readable_low
    texts = coverage.different_texts
    return GateResult(
        name=f"coverage: readable {of} words",
        passed=texts >= policy.min_samples and low > limit,
        value=value,
        limit=limit,
        why=f"{value:.2%} of {coverage.words} words in {texts} different texts are known or spelt in known characters, "
        f"{low:.2%} at least; more than {limit:.2%} needed" + _undecided(value, low, limit) + _too_few(texts, policy),
    )


def judge_recurring(recurring: Recurring, texts: int, policy: GatePolicy, *, of: str) -> GateResult:
    """Are the word types that come back in some texts known, before any fallback to characters?

    Args:
        recurring: what comes back.
        texts: different texts that hold a word.
        policy: the limits.
        of: names the texts: validation or traffic.
    """
    limit, value, low = policy.min_recurring_fraction, recurring.value, recurring.low
    named = f"; unknown: {', '.join(map(repr, recurring.unknown))}" if recurring.unknown else ""
    added = named + _undecided(value, low, limit) + _too_few(texts, policy)
    return GateResult(
        name=f"coverage: recurring {of} word types",
        passed=texts >= policy.min_samples and low > limit,
        value=value,
        limit=limit,
        why=f"training held {value:.2%}, {low:.2%} at least, of {recurring.uses} uses of {recurring.types} word types "
        f"that come back; more than {limit:.2%} needed{added}",
    )


def judge_rise(rise: Rise, texts: int, policy: GatePolicy) -> GateResult:
    """Is the share of unknown words in traffic that of the release's own texts? ``texts``: on the smaller side."""
    limit = policy.max_unknown_rise
    decided = "; undecided, which fails" if rise.value <= limit < rise.high else ""
    return GateResult(
        name="coverage: unknown traffic words",
        passed=texts >= policy.min_samples and rise.high <= limit,
        value=rise.value,
        limit=limit,
        why=f"{rise.own:.1%} of the words of the release's own texts are unknown to it, {100 * rise.value:+.1f} points "
        f"({100 * rise.low:+.1f} to {100 * rise.high:+.1f}) in traffic; at most {100 * limit:+.1f} allowed{decided}"
        + _too_few(texts, policy),
    )


def judge_known_kept(coverage: Coverage, recorded_oov_fraction: float, policy: GatePolicy) -> GateResult:
    """Does serving know the words that training knew? Finds a changed tokenizer or text pipeline."""
    recorded, limit = 1.0 - recorded_oov_fraction, policy.min_known_kept_fraction
    kept = coverage.known_fraction / recorded if recorded > 0.0 else math.nan
    return GateResult(
        name="coverage: known words kept",
        passed=kept > limit,
        value=kept,
        limit=limit,
        why=f"serving knows {coverage.known_fraction:.2%} of the words of the release's own texts, training recorded "
        f"{recorded:.2%}; more than {limit:.2%} of that needed",
    )


def judge_known_floor(coverage: Coverage, policy: GatePolicy) -> GateResult:
    """Does the vocabulary fit the release's own held-out texts at all?"""
    limit, value = policy.min_known_fraction, coverage.known_fraction
    return GateResult(
        name="coverage: known words",
        passed=value > limit,
        value=value,
        limit=limit,
        why=f"{value:.2%} of the words of the validation texts occur in training, more than {limit:.2%} needed",
    )


def judge_types_kept(now: float, recorded: float | None, policy: GatePolicy) -> GateResult:
    """Does serving know the different words of the release's own texts that training knew?"""
    limit = policy.min_types_fraction
    kept = now / recorded if recorded is not None and recorded > 0.0 else math.nan
    return GateResult(
        name="coverage: known word types kept",
        passed=kept > limit,
        value=kept,
        limit=limit,
        why=f"serving knows {now:.2%} of the different words of the release's own texts, before any fallback to "
        f"characters; training recorded {'nothing' if recorded is None else f'{recorded:.2%}'}; more than {limit:.2%} "
        "of that needed",
    )


def _undecided(value: float, low: float, limit: float) -> str:
    return "; undecided, which fails: give more texts" if low <= limit < value else ""


def _too_few(count: int, policy: GatePolicy) -> str:
    return "" if count >= policy.min_samples else f"; {count} texts decide nothing, give at least {policy.min_samples}"
