"""Measures a release the way serving will use it, and judges what was measured.

What the spread of answers is compared with: the answers that the release's own training recorded for its evaluation
texts (a candidate whose files, loader, sanitiser or calibration say something else has training-serving skew); both
sides of that comparison are the same model, so it is two-sided and sharp. When there is a served release with the same
intents, also what that one recorded for *its* texts: another model, so only flatter answers count against it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.errors import ConfigError, FailsoftError
from failsoft.models.labels import LabelSet
from failsoft.models.narrow import stored_as
from failsoft.models.predictor import IntentNerPredictor
from failsoft.release import coverage_gates, gates, replica_gates
from failsoft.release.candidate import UNREADABLE, contents_of, golden_answers, load_predictor, not_finite, open_release
from failsoft.release.coverage import Coverage, coverage_of, recurring_of, unknown_rise
from failsoft.release.divergence import divergence
from failsoft.release.edges import EDGE_CASES
from failsoft.release.evidence import Evidence, answers_of, read_evidence
from failsoft.release.given import Given, Watch, as_given
from failsoft.release.measures import (
    accuracy_results,
    fallback_results,
    fallback_right_results,
    record_results,
    replica_results,
    worth_results,
)
from failsoft.release.own_gates import NOTE, own_results
from failsoft.release.report import GateReport, GateResult
from failsoft.release.spread import Answers, deviations, log_probabilities
from failsoft.release.variants import variant_results
from failsoft.release.waivers import idle, waive
from failsoft.release.worth_gates import judge_size

__all__ = ["Given", "Inspection", "Watch", "as_given", "gate_bundle"]


def gate_bundle(release: Bundle | Path, given: Given | None = None, *, watch: Watch = lambda _what: None) -> GateReport:
    """Judge a published release or a candidate folder.

    Args:
        release: what is judged; a folder with a manifest is verified first.
        given: what it is judged with.
        watch: told what is measured next.

    Raises nothing for a release that is damaged or incomplete: that fails its gates, with the reason.
    """
    given = given or Given()
    try:
        bundle = release if isinstance(release, Bundle) else open_release(release)
        contents = contents_of(bundle.path)  # first: what is changed while it is judged is not what was judged
        if bundle.own_model:
            return _own_report(bundle, given, contents)
        predictor = load_predictor(bundle)
    except (FailsoftError, OSError) as error:
        absent = gates.not_measured("loads as serving loads it", str(error))
        return GateReport(release=release.name, results=(absent,))
    results = Inspection(bundle=bundle, predictor=predictor, given=given, watch=watch).results()
    return GateReport(
        release=release.name,
        results=waive(results, given.waivers, today=given.today),
        against=given.previous.name if given.previous else None,
        notes=(*_notes(given), *idle(results, given.waivers, today=given.today)),
        facts=_facts(bundle, given, contents),
    )


def _own_report(bundle: Bundle, given: Given, contents: str) -> GateReport:
    results = own_results(bundle, given.policy)
    return GateReport(
        release=bundle.name,
        results=waive(results, given.waivers, today=given.today),
        notes=(NOTE, *idle(results, given.waivers, today=given.today)),
        facts=_facts(bundle, given, contents),
    )


def _notes(given: Given) -> tuple[str, ...]:
    notes = []
    if given.previous is None:
        notes.append(f"compared with no served release: {given.alone}")
    if given.traffic is None:
        notes.append("coverage rests on validation texts; give recent traffic with --traffic")
    if not given.policy.widths:
        notes.append("no narrow variants were made: widths is empty, and quantization was not judged")
    if given.probe is None:
        notes.append("no replica was started: loading, latency and training-serving skew were not judged")
    return tuple(notes)


def _facts(bundle: Bundle, given: Given, contents: str) -> dict[str, Any]:
    return {
        "digest": bundle.digest or None,
        "contents": contents,
        "traffic_texts": None if given.traffic is None else len(given.traffic),
        "limits": asdict(given.policy),
        "waivers": [{"gate": w.gate, "reason": w.reason, "until": str(w.until or "")} for w in given.waivers],
    }


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """One loaded release and what it is measured with."""

    bundle: Bundle
    predictor: IntentNerPredictor
    given: Given = field(default_factory=Given)
    watch: Watch = lambda _what: None

    def results(self) -> tuple[GateResult, ...]:
        """All judgements."""
        plan: list[tuple[str, Callable[[], list[GateResult]]]] = [
            ("finite weights", self.weights),
            ("size", self.size),
            ("coverage", self.coverage),
            ("spread", self.spread),
            ("records", self.records),
            ("worth", self.worth),
            ("golden inputs", self.golden),
            ("fallback", self.fallback),
            ("quantization KL", self.quantization),
        ]
        if self.given.traffic is not None:
            plan.insert(3, ("coverage of traffic", self.traffic_coverage))
        if self.given.probe is not None:
            plan.append((replica_gates.LOADS, self.replica))  # by the name that nobody may waive
        if self.given.previous is not None:
            plan.append(("spread against the served release", self.spread_against_previous))
            plan.append(("accuracy against the served release", self.accuracy_against_previous))
        return tuple(result for name, measure in plan for result in self._guarded(name, measure))

    def weights(self) -> list[GateResult]:
        """Every tensor of the file."""
        state = load_file(self.bundle.part(Role.WEIGHTS))
        return [gates.judge_weights(not_finite(state), len(state))]

    def size(self) -> list[GateResult]:
        """Every file of the release."""
        sizes = [path.stat().st_size for path in self.bundle.path.rglob("*") if path.is_file()]
        return [judge_size(sizes, self.given.policy)]

    def coverage(self) -> list[GateResult]:
        """The vocabulary on the release's own texts, as serving reads them."""
        policy, codec = self.given.policy, self.predictor.codec
        texts, recorded = self._cleaned(read_evidence(self.bundle).texts), self.bundle.baseline()
        coverage = coverage_of(codec, texts, policy.bootstrap)
        return [
            *self._read_and_known(texts, coverage, of="validation"),
            coverage_gates.judge_known_floor(coverage, policy),
            coverage_gates.judge_known_kept(coverage, recorded.oov_fraction, policy),
            coverage_gates.judge_types_kept(codec.type_coverage(texts), recorded.known_types_fraction, policy),
        ]

    def traffic_coverage(self) -> list[GateResult]:
        """The vocabulary on recent traffic."""
        codec, traffic, policy = self.predictor.codec, self._cleaned(self.given.traffic or ()), self.given.policy
        own, coverage = self._cleaned(read_evidence(self.bundle).texts), coverage_of(codec, traffic, policy.bootstrap)
        rise = unknown_rise(codec, traffic, own, policy.bootstrap)
        fewer = min(coverage.different_texts, len(set(own)))
        return [*self._read_and_known(traffic, coverage, of="traffic"), coverage_gates.judge_rise(rise, fewer, policy)]

    def _read_and_known(self, texts: Sequence[str], coverage: Coverage, *, of: str) -> list[GateResult]:
        policy = self.given.policy
        recurring = recurring_of(self.predictor.codec, texts, policy.bootstrap)
        return [
            coverage_gates.judge_readable(coverage, policy, of=of),
            coverage_gates.judge_recurring(recurring, coverage.different_texts, policy, of=of),
        ]

    def spread(self) -> list[GateResult]:
        """Logits and entropies, as serving gets them, against what training recorded."""
        policy, (evidence, now) = self.given.policy, self._asked_again(self.bundle)
        recorded = log_probabilities(evidence.logits_BC, evidence.temperature)
        apart = divergence(recorded, log_probabilities(now.logits_BC, self.bundle.calibration().temperature))
        found = deviations(now, evidence.answers, policy.bootstrap)
        spread = [gates.judge_deviation(deviation, policy, against="recorded in training") for deviation in found]
        return [*spread, gates.judge_same_answers(apart, policy)]

    def records(self) -> list[GateResult]:
        """Slots and healthy baseline against what was recorded."""
        evidence = read_evidence(self.bundle)
        scores = self.predictor.predict(self._cleaned(evidence.texts))
        return record_results(evidence, scores, self.bundle, self.predictor.codec, self.given)

    def spread_against_previous(self) -> list[GateResult]:
        """Logits and entropies against the served release, on that release's texts."""
        served, policy = self._served(), self.given.policy
        evidence, now = self._asked_again(served)
        logit_std, entropy_mean, entropy_std = deviations(now, evidence.answers, policy.bootstrap)
        against = f"in release {served.name}"
        flatter = [gates.judge_not_flatter(found, policy, against=against) for found in (logit_std, entropy_mean)]
        return [*flatter, gates.judge_entropy_std(entropy_std, policy, against=against)]

    def accuracy_against_previous(self) -> list[GateResult]:
        """Right answers to this release's own held-out texts, against those that the served release gives to them."""
        evidence, now = self._asked_again(self.bundle)
        served = self._served()
        theirs = load_predictor(served).predict([self.given.previous_clean(text) for text in evidence.texts])
        return accuracy_results(evidence, now, theirs.best_intents(), self.predictor.labels, served.name, self.given)

    def worth(self) -> list[GateResult]:
        """Whether the model is sure often enough, honest, and no worse than the trees that would answer instead."""
        evidence, now = self._asked_again(self.bundle)
        return worth_results(self.bundle, evidence, now, self.predictor.labels, self.given)

    def golden(self) -> list[GateResult]:
        """Golden inputs through the serving path."""
        recorded = self.bundle.golden()
        texts = [golden.text for golden in recorded]
        scores = self.predictor.predict(self._cleaned(texts))
        now = golden_answers(texts, scores, self.bundle.calibration().temperature)
        return [gates.judge_golden(recorded, now, self.given.policy)]

    def fallback(self) -> list[GateResult]:
        """Trees and rules load, and between them every text, odd ones first, gets an intent."""
        texts = self._cleaned([*EDGE_CASES, *(golden.text for golden in self.bundle.golden())])
        right = fallback_right_results(self.bundle, read_evidence(self.bundle), self.given)
        return [*fallback_results(self.bundle, texts), *right]

    def quantization(self) -> list[GateResult]:
        """Each narrower storage against whole weights, on edge cases and the evaluation texts."""
        texts = self._cleaned([*EDGE_CASES, *read_evidence(self.bundle).texts])
        return variant_results(self.bundle, self.predictor, texts, self.given)

    def replica(self) -> list[GateResult]:
        """A replica in a process of its own: loading, latency, and what reaches the network there."""
        whole = stored_as(self.bundle.part(Role.WEIGHTS)).width is None
        return replica_results(self.bundle, self.predictor, self.given, whole=whole)

    def _served(self) -> Bundle:
        previous = self.given.previous
        if previous is None:
            raise ConfigError("no served release was given")
        if LabelSet.load(previous.part(Role.LABELS)).intents != self.predictor.labels.intents:
            raise ConfigError(f"release {previous.name} tells other intents apart; compare with one of the same task")
        return previous

    def _asked_again(self, whose: Bundle) -> tuple[Evidence, Answers]:
        """Recorded evidence, and what this release says to the same texts by the serving path."""
        evidence = read_evidence(whose)
        scores = self.predictor.predict(self._cleaned(evidence.texts))
        return evidence, answers_of(scores.intent_logits_BC, self.bundle.calibration().temperature)

    def _cleaned(self, texts: Sequence[str]) -> list[str]:
        return [self.given.clean(text) for text in texts]

    def _guarded(self, name: str, measure: Callable[[], list[GateResult]]) -> list[GateResult]:
        self.watch(name)
        try:
            return measure()
        except UNREADABLE as error:  # an unreadable part is a failed gate
            return [gates.not_measured(name, str(error) or type(error).__name__)]
