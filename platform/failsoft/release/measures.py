"""Single measurements of a loaded release that need more than one line, and what the gates say to them."""
# B texts, C intents

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.models.gbdt import GbdtIntent
from failsoft.models.labels import LabelSet
from failsoft.models.narrow import stored_as
from failsoft.models.predictor import IntentNerPredictor
from failsoft.models.rules import RulesEngine
from failsoft.models.scores import ScoreBatch
from failsoft.models.tokens import TextCodec
from failsoft.release import gates, record_gates, replica_gates
from failsoft.release.baseline import LOW_CONFIDENCE, measure
from failsoft.release.calibrate import calibration_error, fit_temperature
from failsoft.release.candidate import ids_as_training
from failsoft.release.edges import EDGE_CASES
from failsoft.release.evidence import Evidence, read_evidence, slots_of, spread_out
from failsoft.release.given import Given
from failsoft.release.replica import Probe
from failsoft.release.report import GateResult
from failsoft.release.spread import Answers, log_probabilities, share_of
from failsoft.release.worth_gates import judge_accuracy, judge_calibration, judge_temperature


def worth_results(bundle: Bundle, evidence: Evidence, now: Answers, labels: LabelSet, given: Given) -> list[GateResult]:
    """Weak answers, calibration as served, and the lead over the release's own fallback trees."""
    policy, temperature = given.policy, bundle.calibration().temperature
    log_p_BC = log_probabilities(now.logits_BC, temperature)
    weak_B = ~(np.exp(log_p_BC.max(axis=1)) >= LOW_CONFIDENCE)
    labels_B = np.array([labels.intent_index(intent) for intent in evidence.intents])
    trees = GbdtIntent.load(bundle.part(Role.GBDT))
    guessed = [trees.predict_one(given.clean(text)) for text in evidence.texts]
    theirs_B = np.array([g is not None and g.intent == true for g, true in zip(guessed, evidence.intents, strict=True)])
    right_B = now.logits_BC.argmax(axis=1) == labels_B
    lead = share_of(right_B.astype(int) - theirs_B.astype(int), policy.bootstrap)
    error = calibration_error(now.logits_BC, labels_B, temperature)
    fitted = fit_temperature(evidence.logits_BC, labels_B)
    return [
        gates.judge_weak(share_of(weak_B, policy.bootstrap), policy),
        judge_calibration(error, len(evidence), policy),
        judge_temperature(temperature, fitted, len(evidence), policy),
        gates.judge_against_fallback(lead, policy),
    ]


def accuracy_results(
    evidence: Evidence, now: Answers, served: Sequence[str], labels: LabelSet, against: str, given: Given
) -> list[GateResult]:
    """Right answers of both models to the same texts. Logits that are not finite are no right answer."""
    finite_B = np.isfinite(now.logits_BC).all(axis=1)
    said = [labels.intents[best] for best in now.logits_BC.argmax(axis=1).tolist()]
    right_B = finite_B & np.array([ours == true for ours, true in zip(said, evidence.intents, strict=True)])
    served_B = np.array([theirs == true for theirs, true in zip(served, evidence.intents, strict=True)])
    return [judge_accuracy(right_B, served_B, given.policy, against=f"in release {against}")]


def fallback_results(bundle: Bundle, texts: Sequence[str]) -> list[GateResult]:
    """What trees and rules say to cleaned texts."""
    trees, rules = GbdtIntent.load(bundle.part(Role.GBDT)), RulesEngine.load(bundle.part(Role.RULES))
    silent = [text for text in texts if not (trees.predict_one(text) or rules.answer(text)).intent]
    known = {*trees.intents, *(rule.intent for rule in rules.rule_set.rules)}
    strange = sorted(known - set(LabelSet.load(bundle.part(Role.LABELS)).intents))
    return [gates.judge_fallback(silent, len(texts)), record_gates.judge_fallback_task(strange, sorted(known))]


def fallback_right_results(bundle: Bundle, evidence: Evidence, given: Given) -> list[GateResult]:
    """How often trees and rules are right, each on the texts that it knows something of."""
    trees, rules = GbdtIntent.load(bundle.part(Role.GBDT)), RulesEngine.load(bundle.part(Role.RULES))
    texts = [given.clean(text) for text in evidence.texts]
    by_rules = [answer.intent if (answer := rules.answer(text)).matched else None for text in texts]
    by_trees = [guess.intent if (guess := trees.predict_one(text)) else None for text in texts]
    chance = sum((count / len(texts)) ** 2 for count in Counter(evidence.intents).values())
    parts = [_right("trees", by_trees, evidence.intents)]
    if rules.rule_set.rules:  # without any, all that is left to them is the default answer
        parts.append(_right("rules", by_rules, evidence.intents))
    return [record_gates.judge_fallback_right(parts, chance)]


def record_results(
    evidence: Evidence, scores: ScoreBatch, bundle: Bundle, codec: TextCodec, given: Given
) -> list[GateResult]:
    """Slots and baseline, as recorded and as they are; ``scores`` are of the texts as serving cleans them."""
    texts, recorded = [given.clean(text) for text in evidence.texts], bundle.baseline()
    now = measure(
        scores,
        temperature=bundle.calibration().temperature,
        intents=evidence.intents,
        known_types_fraction=codec.type_coverage(texts),
    )
    judged = [record_gates.judge_baseline(recorded, now, given.policy)]
    if evidence.slots is not None:
        narrow = stored_as(bundle.part(Role.WEIGHTS)).width is not None
        judged.append(record_gates.judge_slots(evidence.slots, slots_of(texts, scores), given.policy, narrow=narrow))
    return judged


def _right(part: str, said: Sequence[str | None], intents: Sequence[str]) -> record_gates.Right:
    answered = [(ours, true) for ours, true in zip(said, intents, strict=True) if ours is not None]
    return record_gates.Right(part=part, right=sum(ours == true for ours, true in answered), answered=len(answered))


def replica_results(bundle: Bundle, predictor: IntentNerPredictor, given: Given, *, whole: bool) -> list[GateResult]:
    """The online path, by a real process, against what training recorded; ``whole``: its weights are not narrow."""
    policy, evidence = given.policy, read_evidence(bundle)
    places = spread_out(
        len(evidence)
    )  # all: of 200 texts of SNIPS two that the sanitiser changes were one in a hundred
    texts = [evidence.texts[place] for place in places]
    ids = evidence.ids or ids_as_training(predictor.codec, predictor.labels, evidence.texts)
    probe: Probe | None = given.probe
    if probe is None:
        return []
    report = probe(bundle.path, [*texts, *EDGE_CASES])
    online = report.answers[: len(texts)]
    logits_BC = evidence.logits_BC[places]
    intents = [predictor.labels.intents[best] for best in logits_BC.argmax(axis=1).tolist()]
    results = [
        replica_gates.judge_replica(report, len(texts) + len(EDGE_CASES), policy),
        replica_gates.judge_latency(report, policy),
        replica_gates.judge_same_ids([ids[place] for place in places], online, policy),
        replica_gates.judge_same_answers(intents, online, policy),
    ]
    return [*results, replica_gates.judge_same_logits(logits_BC, online, policy)] if whole else results
