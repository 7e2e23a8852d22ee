"""The gates of a release: pure judgements over measurements. Missing, infinite or undecidable data fails."""

from __future__ import annotations

from collections.abc import Sequence

from failsoft.artifacts.bundle import Golden
from failsoft.models.narrow import Width
from failsoft.release.divergence import Divergence
from failsoft.release.policy import GatePolicy
from failsoft.release.report import GateResult
from failsoft.release.spread import Deviation, Share


def judge_deviation(deviation: Deviation, policy: GatePolicy, *, against: str) -> GateResult:
    """Is one statistic as it was in the reference that ``against`` names? The whole interval must lie within."""
    limit, words = policy.max_deviation, deviation.name.replace("_", " ")
    within = -limit <= deviation.low and deviation.high <= limit and abs(deviation.value) <= limit
    outside = deviation.low > limit or deviation.high < -limit
    decided = "" if within or outside else "; undecided, which fails"
    return _result(
        f"{words} as {against}",
        passed=deviation.samples >= policy.min_samples and within,
        value=deviation.value,
        limit=limit,
        why=f"{words} deviates by {_interval(deviation)} from the one {against}, within ±{limit:.0%} needed{decided}"
        + _too_few(deviation.samples, policy),
    )


def judge_not_flatter(deviation: Deviation, policy: GatePolicy, *, against: str) -> GateResult:
    """Has a retrained model become flatter than the served one? Over-regularised ones have; better ones are sharper.

    One-sided, unlike :func:`judge_deviation`: training again with another seed moves the logit std by less than 1 % and
    the entropy mean by some 15 %, training twice as long lowers the latter by a quarter and is no fault. At 15 % every
    other healthy retraining would be stopped. A temperature a quarter too high makes the entropy mean 2.5 times larger,
    one half too high five times (SNIPS and the embedded corpus), so 50 % tells the two apart.
    """
    is_entropy, words = deviation.name.startswith("entropy"), deviation.name.replace("_", " ")
    limit = policy.max_entropy_rise if is_entropy else policy.max_logit_fall
    worst = deviation.high if is_entropy else -deviation.low
    return _result(
        f"{words} not flatter than {against}",
        passed=deviation.samples >= policy.min_samples and worst <= limit,
        value=deviation.value,
        limit=limit if is_entropy else -limit,
        why=f"{words} deviates by {_interval(deviation)} from the one {against}; a "
        f"{'rise' if is_entropy else 'fall'} of at most {limit:.0%} allowed" + _too_few(deviation.samples, policy),
    )


def judge_entropy_std(deviation: Deviation, policy: GatePolicy, *, against: str) -> GateResult:
    """Do a retrained model's doubts vary about as much as the served one's?

    Two-sided: doubt spread evenly over all texts (over-regularised) lowers it, answers that are sure or lost raise it.
    """
    limit = policy.max_entropy_std_change
    within = -limit <= deviation.low and deviation.high <= limit
    return _result(
        f"entropy std as {against}",
        passed=deviation.samples >= policy.min_samples and within,
        value=deviation.value,
        limit=limit,
        why=f"entropy std deviates by {_interval(deviation)} from the one {against}, within ±{limit:.0%} needed"
        + _too_few(deviation.samples, policy),
    )


def judge_same_answers(divergence: Divergence, policy: GatePolicy) -> GateResult:
    """Does serving say what training recorded, text by text? Sharper than the spread, which averages over texts."""
    limit = policy.max_kl
    return _result(
        "answers as recorded in training",
        passed=_within(divergence, limit),
        value=divergence.maximum,
        limit=limit,
        why=f"KL(training ‖ serving) of the intents: {_in_words(divergence, limit)}",
    )


def judge_weak(weak: Share, policy: GatePolicy) -> GateResult:
    """Is the model sure often enough for serving to tell health from illness?"""
    limit = policy.max_weak_fraction
    return _result(
        "weak answers",
        passed=weak.texts >= policy.min_samples and weak.value <= limit,
        value=weak.value,
        limit=limit,
        why=f"{weak.value:.2%} of {weak.texts} validation texts get a weak answer, at most {limit:.0%} allowed"
        + _too_few(weak.texts, policy),
    )


def judge_against_fallback(lead: Share, policy: GatePolicy) -> GateResult:
    """Is the model worth its cost? ``lead`` is its intent accuracy less that of its own fallback trees."""
    limit = -policy.max_accuracy_behind_fallback
    return _result(
        "accuracy against the fallback",
        passed=lead.texts >= policy.min_samples and lead.low >= limit,
        value=lead.value,
        limit=limit,
        why=f"intent accuracy less that of the trees is {lead.value:+.1%} ({lead.low:+.1%} to {lead.high:+.1%} "
        f"on {lead.texts} texts); the low end must reach {limit:+.0%}" + _too_few(lead.texts, policy),
    )


def judge_divergence(divergence: Divergence, width: Width, policy: GatePolicy, *, head: str) -> GateResult:
    """Does the model stored at ``width`` say the same? Both the mean and the maximum are held to the limit."""
    limit = policy.max_kl
    return _result(
        f"quantization KL: {head} in {width}",
        passed=_within(divergence, limit),
        value=divergence.maximum,
        limit=limit,
        why=f"KL(fp32 ‖ {width}) of the {head}s: {_in_words(divergence, limit)}",
    )


def judge_weights(not_finite: Sequence[str], tensors: int) -> GateResult:
    """Is every weight a number?"""
    named = f": {', '.join(not_finite[:3])}" if not_finite else ""
    return _result(
        "finite weights",
        passed=tensors > 0 and not not_finite,
        value=float(len(not_finite)),
        limit=0.0,
        why=f"{len(not_finite)} of {tensors} tensors hold NaN or Inf{named}",
    )


def judge_golden(recorded: Sequence[Golden], now: Sequence[Golden], policy: GatePolicy) -> GateResult:
    """Are the golden inputs answered as they were when the release was made?"""
    pairs = list(zip(recorded, now, strict=True))
    changed = [pair for pair in pairs if not _same_answer(*pair, policy.max_golden_shift)]
    first = ""
    if changed:
        old, new = changed[0]
        first = (
            f"; first: {old.text[:40]!r} was {old.intent} {old.confidence:.3f}, is {new.intent} {new.confidence:.3f}"
        )
    return _result(
        "golden inputs",
        passed=bool(pairs) and not changed,
        value=float(len(changed)),
        limit=0.0,
        why=f"{len(changed)} of {len(pairs)} golden inputs are answered otherwise than recorded{first}",
    )


def judge_fallback(silent: Sequence[str], asked: int) -> GateResult:
    """Do the rules answer every text, and do the trees load? ``silent`` are the texts without an answer."""
    first = f"; first: {silent[0][:40]!r}" if silent else ""
    return _result(
        "fallback answers",
        passed=asked > 0 and not silent,
        value=float(len(silent)),
        limit=0.0,
        why=f"{len(silent)} of {asked} texts get no answer from trees and rules{first}",
    )


def not_measured(name: str, why: str) -> GateResult:
    """A gate whose data could not be had: it fails."""
    return _result(name, passed=False, value=None, limit=None, why=f"could not be measured: {why}")


def _result(name: str, *, passed: bool, value: float | None, limit: float | None, why: str) -> GateResult:
    return GateResult(name=name, passed=passed, value=value, limit=limit, why=why)


def _within(divergence: Divergence, limit: float) -> bool:
    return divergence.count > 0 and divergence.mean < limit and divergence.maximum < limit


def _in_words(divergence: Divergence, limit: float) -> str:
    numbers = f"mean {divergence.mean:.2g}, maximum {divergence.maximum:.2g} over {divergence.count} cases"
    return f"{numbers}, both below {limit} needed"


def _interval(deviation: Deviation) -> str:
    return f"{deviation.value:+.1%} ({deviation.low:+.1%} to {deviation.high:+.1%} on {deviation.samples} texts)"


def _same_answer(old: Golden, new: Golden, max_shift: float) -> bool:
    return old.text == new.text and old.intent == new.intent and abs(old.confidence - new.confidence) <= max_shift


def _too_few(count: int, policy: GatePolicy) -> str:
    return "" if count >= policy.min_samples else f"; {count} texts decide nothing, give at least {policy.min_samples}"
