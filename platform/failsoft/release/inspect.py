"""Measures a release the way serving will use it, and judges what was measured.

What the spread of answers is compared with: the answers that the release's own training recorded for its evaluation
texts (a candidate whose files, loader, sanitiser or calibration say something else has training-serving skew); both
sides of that comparison are the same model, so it is two-sided and sharp. When there is a served release with the same
intents, also what that one recorded for *its* texts: another model, so only flatter answers count against it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.torch import load_file

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.errors import ConfigError, FailsoftError
from failsoft.models.gbdt import GbdtIntent
from failsoft.models.labels import LabelSet
from failsoft.models.narrow import narrow_copy
from failsoft.models.network import IntentNer
from failsoft.models.predictor import IntentNerPredictor
from failsoft.models.rules import RulesEngine
from failsoft.release import gates
from failsoft.release.baseline import LOW_CONFIDENCE
from failsoft.release.candidate import (
    Clean,
    ask_as_training,
    golden_answers,
    load_predictor,
    not_finite,
    open_release,
)
from failsoft.release.coverage import compare_types, coverage_of
from failsoft.release.divergence import divergence
from failsoft.release.edges import EDGE_CASES
from failsoft.release.evidence import Evidence, answers_of, read_evidence
from failsoft.release.policy import GatePolicy
from failsoft.release.report import GateReport, GateResult
from failsoft.release.spread import Answers, Floats, deviations, log_probabilities, share_of

Watch = Callable[[str], object]
"""Told what is being measured, for a progress display."""


def as_given(text: str) -> str:
    """No sanitiser: the text as it is."""
    return text


def gate_bundle(
    release: Bundle | Path,
    traffic: Sequence[str] | None = None,
    *,
    previous: Bundle | None = None,
    clean: Clean = as_given,
    policy: GatePolicy | None = None,
    watch: Watch = lambda _what: None,
) -> GateReport:
    """Judge a published release or a candidate folder.

    Args:
        release: what is judged; a folder with a manifest is verified first.
        traffic: recent texts of callers; without them coverage rests on the release's own validation texts.
        previous: the release that is served now; its recorded answers are a second reference.
        clean: the sanitiser that serving puts before the model.
        policy: limits.
        watch: told what is measured next.

    Raises nothing for a release that is damaged or incomplete: that fails its gates, with the reason.
    """
    name = release.name
    try:
        bundle = release if isinstance(release, Bundle) else open_release(release)
        predictor = load_predictor(bundle)
    except (FailsoftError, OSError) as error:
        return GateReport(release=name, results=(gates.not_measured("loads as serving loads it", str(error)),))
    inspection = Inspection(
        bundle=bundle,
        predictor=predictor,
        traffic=traffic,
        previous=previous,
        clean=clean,
        policy=policy or GatePolicy(),
        watch=watch,
    )
    return GateReport(release=name, results=inspection.results())


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """One loaded release and what it is measured with."""

    bundle: Bundle
    predictor: IntentNerPredictor
    traffic: Sequence[str] | None = None
    previous: Bundle | None = None
    clean: Clean = as_given
    policy: GatePolicy = field(default_factory=GatePolicy)
    watch: Watch = lambda _what: None

    def results(self) -> tuple[GateResult, ...]:
        """All judgements."""
        plan: list[tuple[str, Callable[[], list[GateResult]]]] = [
            ("finite weights", self.weights),
            ("coverage", self.coverage),
            ("spread", self.spread),
            ("worth", self.worth),
            ("golden inputs", self.golden),
            ("fallback", self.fallback),
            ("quantization KL", self.quantization),
        ]
        if self.traffic is not None:
            plan.insert(2, ("coverage of traffic", self.traffic_coverage))
        if self.previous is not None:
            plan.append(("spread against the served release", self.spread_against_previous))
        return tuple(result for name, measure in plan for result in self._guarded(name, measure))

    def weights(self) -> list[GateResult]:
        """Every tensor of the file."""
        state = load_file(self.bundle.part(Role.WEIGHTS))
        return [gates.judge_weights(not_finite(state), len(state))]

    def coverage(self) -> list[GateResult]:
        """The vocabulary on the release's own texts, as serving reads them."""
        coverage = coverage_of(self.predictor.codec, self._cleaned(read_evidence(self.bundle).texts))
        return [
            gates.judge_readable(coverage, self.policy, of="validation"),
            gates.judge_known_floor(coverage, self.policy),
            gates.judge_known_kept(coverage, self.bundle.baseline().oov_fraction, self.policy),
        ]

    def traffic_coverage(self) -> list[GateResult]:
        """The vocabulary on recent traffic."""
        codec, traffic = self.predictor.codec, self._cleaned(self.traffic or ())
        own = self._cleaned(read_evidence(self.bundle).texts)
        types = compare_types(codec, traffic, own, self.policy.bootstrap)
        return [
            gates.judge_readable(coverage_of(codec, traffic), self.policy, of="traffic"),
            gates.judge_traffic_types(types, self.policy),
        ]

    def spread(self) -> list[GateResult]:
        """Logits and entropies, as serving gets them, against what training recorded."""
        evidence, now = self._asked_again(self.bundle)
        temperature = self.bundle.calibration().temperature
        apart = divergence(
            log_probabilities(evidence.logits_BC, evidence.temperature), log_probabilities(now.logits_BC, temperature)
        )
        found = deviations(now, evidence.answers, self.policy.bootstrap)
        spread = [gates.judge_deviation(deviation, self.policy, against="recorded in training") for deviation in found]
        return [*spread, gates.judge_same_answers(apart, self.policy)]

    def spread_against_previous(self) -> list[GateResult]:
        """Logit std and entropy mean against the served release, on that release's texts."""
        if self.previous is None:
            return []
        theirs = LabelSet.load(self.previous.part(Role.LABELS)).intents
        if theirs != self.predictor.labels.intents:
            raise ConfigError(
                f"release {self.previous.name} tells other intents apart; compare with one of the same task"
            )
        evidence, now = self._asked_again(self.previous)
        logit_std, entropy_mean, _ = deviations(now, evidence.answers, self.policy.bootstrap)
        against = f"in release {self.previous.name}"
        return [gates.judge_not_flatter(found, self.policy, against=against) for found in (logit_std, entropy_mean)]

    def worth(self) -> list[GateResult]:
        """Whether the model is sure often enough, and no worse than the trees that would answer in its place."""
        evidence, now = self._asked_again(self.bundle)
        log_p_BC = log_probabilities(now.logits_BC, self.bundle.calibration().temperature)
        weak_B = ~(np.exp(log_p_BC.max(axis=1)) >= LOW_CONFIDENCE)
        names, trees = self.predictor.labels.intents, GbdtIntent.load(self.bundle.part(Role.GBDT))
        said = [names[best] for best in log_p_BC.argmax(axis=1).tolist()]
        guessed = [trees.predict_one(text) for text in self._cleaned(evidence.texts)]
        right_B = np.array([ours == true for ours, true in zip(said, evidence.intents, strict=True)])
        theirs_B = np.array(
            [g is not None and g.intent == true for g, true in zip(guessed, evidence.intents, strict=True)]
        )
        lead = share_of(right_B.astype(int) - theirs_B.astype(int), self.policy.bootstrap)
        return [
            gates.judge_weak(share_of(weak_B, self.policy.bootstrap), self.policy),
            gates.judge_against_fallback(lead, self.policy),
        ]

    def golden(self) -> list[GateResult]:
        """Golden inputs through the serving path."""
        recorded = self.bundle.golden()
        texts = [golden.text for golden in recorded]
        scores = self.predictor.predict(self._cleaned(texts))
        now = golden_answers(texts, scores, self.bundle.calibration().temperature)
        return [gates.judge_golden(recorded, now, self.policy)]

    def fallback(self) -> list[GateResult]:
        """Trees and rules load, and between them every text, odd ones first, gets an intent."""
        trees, rules = GbdtIntent.load(self.bundle.part(Role.GBDT)), RulesEngine.load(self.bundle.part(Role.RULES))
        texts = self._cleaned([*EDGE_CASES, *(golden.text for golden in self.bundle.golden())])
        silent = [text for text in texts if not (trees.predict_one(text) or rules.answer(text)).intent]
        return [gates.judge_fallback(silent, len(texts))]

    def quantization(self) -> list[GateResult]:
        """Each narrower storage against full weights, on edge cases and the evaluation texts."""
        texts = self._cleaned([*EDGE_CASES, *read_evidence(self.bundle).texts])
        network, codec, labels = self.predictor.model, self.predictor.codec, self.predictor.labels
        temperature = self.bundle.calibration().temperature

        def ask(model: IntentNer) -> tuple[Floats, Floats]:
            said = ask_as_training(model, codec, labels, texts)
            return log_probabilities(said.intent_BC, temperature), log_probabilities(said.slot_NS)

        full, results = ask(network), []
        for width in self.policy.widths:
            narrow = ask(narrow_copy(network, width))
            for head, wide_BC, narrow_BC in zip(("intent", "slot"), full, narrow, strict=True):
                results.append(gates.judge_divergence(divergence(wide_BC, narrow_BC), width, self.policy, head=head))
        return results

    def _asked_again(self, whose: Bundle) -> tuple[Evidence, Answers]:
        """Recorded evidence, and what this release says to the same texts by the serving path."""
        evidence = read_evidence(whose)
        scores = self.predictor.predict(self._cleaned(evidence.texts))
        return evidence, answers_of(scores.intent_logits_BC, self.bundle.calibration().temperature)

    def _cleaned(self, texts: Sequence[str]) -> list[str]:
        return [self.clean(text) for text in texts]

    def _guarded(self, name: str, measure: Callable[[], list[GateResult]]) -> list[GateResult]:
        self.watch(name)
        try:
            return measure()
        except (
            FailsoftError,
            OSError,
            ValueError,
            TypeError,
            KeyError,
        ) as error:  # an unreadable part is a failed gate
            return [gates.not_measured(name, str(error))]
