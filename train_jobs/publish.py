"""From a finished run to a release: every part that serving needs, measured, gated, published. The parts meet here."""
# B texts, C intents

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from failsoft.artifacts.bundle import Bundle, Calibration, Role, write_golden, write_json
from failsoft.artifacts.home import Home
from failsoft.health.clock import Clock, WorkingTime
from failsoft.models.corpus import Corpus, Utterance
from failsoft.models.gbdt import GbdtIntent
from failsoft.models.labels import LabelSet
from failsoft.models.network import IntentNer, save_weights
from failsoft.models.predictor import IntentNerPredictor
from failsoft.models.rules import rules_from_corpus
from failsoft.models.tokens import TextCodec
from failsoft.release.baseline import latency_of, measure
from failsoft.release.calibrate import calibration_error, fit_temperature
from failsoft.release.candidate import ask_as_training, golden_answers, ids_as_training
from failsoft.release.evidence import Evidence, slots_of, spread_out
from failsoft.release.publish import Publisher, write_quality
from failsoft.release.replica import Probe
from failsoft.release.settings import GateSettings, project_settings
from failsoft.serving.intake.sanitizer import TextPolicy, sanitize
from train_jobs.replica import probe_replica
from train_jobs.served import served_release

_GOLDEN = 32
_TIMED = 100


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """What a training run hands over."""

    corpus: Corpus
    """The release is calibrated and measured on its validation split."""
    codec: TextCodec
    labels: LabelSet
    model: IntentNer
    """With the final weights."""
    quality: Mapping[str, Any]
    """Measured on the test split; kept in the release."""
    provenance: Mapping[str, Any]
    """Run, data, seeds, versions: small JSON, kept in the manifest."""
    text_policy: TextPolicy = field(default_factory=TextPolicy)
    """How serving cleans texts before this model."""
    against: str | None = None
    """Release to be compared with; None: the one in service, else the newest published one."""


def publish_run(
    finished: FinishedRun,
    *,
    home: Home,
    clock: Clock,
    name: str | None = None,
    settings: GateSettings | None = None,
    probe: Probe | None = probe_replica,
) -> Bundle:
    """Make, gate and publish the release of a run.

    Args:
        finished: what the run hands over.
        home: where releases lie.
        clock: dates the release.
        name: of the release; None makes one of date and contents.
        settings: the project's limits; None: those in the home's ``gates.toml``, else the defaults.
        probe: starts a replica; None judges without.

    Raises:
        ConfigError: the settings can't be read.
        GateError: naming the gates that failed, and where the candidate and its report lie.
        ArtifactError: the name is taken.
    """
    publisher = Publisher(
        home=home,
        clock=clock,
        settings=settings or project_settings(None, home.root),
        clean_of=cleaner_of,
        probe=probe,
    )
    parts = _Parts(finished=finished, clock=clock)
    named = finished.against and Bundle.of(home.releases(clock).open(finished.against))
    previous = named or served_release(home, clock)
    return publisher.publish(parts.write, name=name, provenance=finished.provenance, previous=previous)


def cleaner(policy: TextPolicy) -> Callable[[str], str]:
    """The sanitiser as the gates need it: text in, text as the model gets it out."""
    return lambda text: sanitize(text, policy).text


def cleaner_of(bundle: Bundle) -> Callable[[str], str]:
    """The sanitiser that serving puts before a release.

    Raises:
        DamagedArtifactError: the release has no text policy.
        ConfigError: it can't be read.
    """
    return cleaner(TextPolicy.from_json(bundle.part(Role.TEXT_POLICY).read_text("utf-8")))


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Writes all parts of one release."""

    finished: FinishedRun
    clock: Clock

    def write(self, folder: Path) -> None:
        """Fill a folder."""
        finished = self.finished
        save_weights(finished.model, folder / Role.WEIGHTS)
        finished.model.config.save(folder / Role.NETWORK)
        finished.codec.save(folder / Role.CODEC)
        finished.labels.save(folder / Role.LABELS)
        (folder / Role.TEXT_POLICY).write_text(finished.text_policy.to_json(), "utf-8")
        GbdtIntent.train(finished.corpus.train).save(folder / Role.GBDT)
        (folder / Role.RULES).write_text(rules_from_corpus(finished.corpus), "utf-8")
        self._measured(folder)

    def _measured(self, folder: Path) -> None:
        """What is known about the model's healthy behaviour, recorded by the path that training takes."""
        validation = self._validation()
        texts = [utterance.text for utterance in validation]
        evidence, error = self._evidence(validation)
        temperature = evidence.temperature
        predictor = IntentNerPredictor(self.finished.model, self.finished.codec, self.finished.labels)
        scores = predictor.predict(texts)
        evidence = replace(evidence, slots=slots_of(texts, scores))
        latency = latency_of(predictor.predict, [texts[n] for n in spread_out(len(texts), _TIMED)], WorkingTime())
        baseline = measure(
            scores,
            temperature=temperature,
            intents=evidence.intents,
            latency=latency,
            known_types_fraction=self.finished.codec.type_coverage(texts),
        )
        (folder / Role.EVAL_TEXTS).write_text(evidence.to_json(), "utf-8")
        write_json(folder, Role.CALIBRATION, Calibration(temperature=temperature))
        write_json(folder, Role.BASELINE, baseline)
        golden = [texts[n] for n in spread_out(len(texts), _GOLDEN)]
        write_golden(folder, golden_answers(golden, predictor.predict(golden), temperature))
        write_quality(folder, {**self.finished.quality, "calibration_error": error})

    def _validation(self) -> list[Utterance]:
        validation = self.finished.corpus.validation
        return [validation[place] for place in spread_out(len(validation))]

    def _evidence(self, validation: list[Utterance]) -> tuple[Evidence, float]:
        """The recorded answers, and the calibration error that is left at the fitted temperature."""
        finished = self.finished
        texts, intents = tuple(u.text for u in validation), tuple(u.intent for u in validation)
        labels_B = np.array([finished.labels.intent_index(intent) for intent in intents])
        logits_BC = ask_as_training(finished.model, finished.codec, finished.labels, texts).intent_BC.astype(np.float64)
        temperature = fit_temperature(logits_BC, labels_B)
        ids = ids_as_training(finished.codec, finished.labels, texts)
        evidence = Evidence(texts=texts, intents=intents, logits_BC=logits_BC, temperature=temperature, ids=ids)
        return evidence, calibration_error(logits_BC, labels_B, temperature)
