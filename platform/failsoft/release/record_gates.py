"""Gates over what a release says of itself: slots, healthy baseline and fallback are those of this very model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from failsoft.artifacts.bundle import Baseline
from failsoft.release.evidence import Slots
from failsoft.release.policy import GatePolicy
from failsoft.release.report import GateResult

_MOVED = 0.02
"""How far a number of the baseline may move: storage in eight bits moves the third digit, another model the first."""
_SAME_IF_NARROW = 0.98
"""Of the slots of a narrow variant, whose near ties fall otherwise (0.2 %); changed names cost all."""
_NUMBERS = (
    "weak_fraction",
    "entropy_mean",
    "entropy_std",
    "logit_std",
    "oov_fraction",
    "oov_mean",
    "oov_std",
    "words_mean",
    "words_std",
    "confidence_mean",
    "known_types_fraction",
    "accuracy",
    "calibration_error",
)


@dataclass(frozen=True, kw_only=True)
class Right:
    """How often a part of the fallback was right, of the texts that it answered."""

    part: str
    right: int
    answered: int


def judge_slots(recorded: Sequence[Slots], now: Sequence[Slots], policy: GatePolicy, *, narrow: bool) -> GateResult:
    """Are the slots that serving finds those that training recorded, by name and by words?

    The only gate that sees slot names which changed places: intents, logits and the golden inputs do not hold them.
    """
    pairs = [(Counter(ours), Counter(theirs)) for ours, theirs in zip(recorded, now, strict=True)]
    found = sum((ours | theirs).total() for ours, theirs in pairs)
    same = sum((ours & theirs).total() for ours, theirs in pairs)
    limit = min(policy.min_same_answers_fraction, _SAME_IF_NARROW) if narrow else policy.min_same_answers_fraction
    share = same / found if found else 1.0
    other = next(((ours - theirs, theirs - ours) for ours, theirs in pairs if ours != theirs), None)
    first = f"; first: training {_some(other[0])}, serving {_some(other[1])}" if other else ""
    return GateResult(
        name="slots as recorded in training",
        passed=bool(pairs) and share >= limit,
        value=share,
        limit=limit,
        why=f"{same} of {found} slots in {len(pairs)} texts are the same in training and in serving, at least "
        f"{limit:.1%} needed{first}",
    )


def judge_baseline(recorded: Baseline, now: Baseline, policy: GatePolicy) -> GateResult:
    """Does the healthy baseline, which arms the monitor, belong to this model? What was not recorded is passed over."""
    moves = {name: _move(getattr(recorded, name), getattr(now, name)) for name in _NUMBERS}
    moves["label_mix"] = _mix_move(recorded.label_mix, now.label_mix)
    known = {name: move for name, move in moves.items() if move is not None}
    worst = max(known, key=lambda name: math.inf if math.isnan(known[name]) else known[name])
    return GateResult(
        name="baseline as measured again",
        passed=recorded.samples >= policy.min_samples and all(move <= _MOVED for move in known.values()),
        value=known[worst],
        limit=_MOVED,
        why=f"of {len(known)} numbers of the healthy baseline, recorded on {recorded.samples} texts, "
        f"{worst.replace('_', ' ')} moved most when they were measured again, by {known[worst]:.2g}; at most {_MOVED} "
        f"allowed, and {policy.min_samples} texts needed",
    )


def judge_fallback_task(strange: Sequence[str], known: Sequence[str]) -> GateResult:
    """Do trees and rules tell apart what the model does? ``strange`` are the intents that only they know."""
    named = f": {', '.join(sorted(strange)[:3])}" if strange else ""
    return GateResult(
        name="fallback of the same task",
        passed=bool(known) and not strange,
        value=float(len(strange)),
        limit=0.0,
        why=f"{len(strange)} intents of trees and rules are none of the model's {len(known)}{named}",
    )


def judge_fallback_right(parts: Sequence[Right], chance: float) -> GateResult:
    """Is the fallback worth asking: more often right, where it answers, than guesses would be?

    Args:
        parts: trees and rules, each with the texts that it answered by what it learned.
        chance: how often guesses are right that are as frequent as the intents.
    """
    shares = {part.part: part.right / part.answered if part.answered else math.nan for part in parts}
    lowest = min(shares.values(), key=lambda share: -1.0 if math.isnan(share) else share, default=math.nan)
    said = " and ".join(f"{part.part} are right on {part.right} of {part.answered} texts" for part in parts)
    return GateResult(
        name="fallback right",
        passed=bool(shares) and all(share > chance for share in shares.values()),
        value=lowest,
        limit=chance,
        why=f"{said}; guesses would be right on {chance:.1%}, and each must be better",
    )


def _move(recorded: float | None, now: float | None) -> float | None:
    """Distance, as a fraction of numbers above 1."""
    if recorded is None or now is None:
        return None
    return abs(recorded - now) / max(1.0, abs(now))


def _mix_move(recorded: Mapping[str, float], now: Mapping[str, float]) -> float:
    """Total variation distance of two label mixes."""
    return sum(abs(recorded.get(label, 0.0) - now.get(label, 0.0)) for label in {*recorded, *now}) / 2.0


def _some(slots: Counter[tuple[str, str]]) -> str:
    return ", ".join(f"{slot} {words[:30]!r}" for slot, words in list(slots)[:2]) or "none"
