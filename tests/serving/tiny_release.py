"""A whole release, small enough to train in seconds: what tests and drills of serving serve."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from failsoft.artifacts.bundle import Baseline, Calibration, Golden, Role, write_golden, write_json
from failsoft.artifacts.home import Home
from failsoft.artifacts.store import Artifact
from failsoft.health.clock import SystemClock
from failsoft.health.window import Outcome
from failsoft.models.corpus import Corpus, Utterance

BATCHES = 250
CALIBRATION = Calibration(temperature=0.6)
"""A network that was trained with smoothed labels for seconds is less sure than it might be."""
TEXTS = [
    "play some jazz in the kitchen",
    "will it rain in Berlin tomorrow",
    "wake me at seven",
    "set a timer for ten minutes",
]
"""What drills ask."""


def publish_tiny(home: Home, name: str = "tiny", *, previous: str | None = None, mislabelled: bool = False) -> Artifact:
    """Train for a few seconds on the embedded corpus and publish.

    ``mislabelled``: each intent has the next one's name, in training and validation alike. Such a model is sure of
    itself and passes all that is known of it; only who knows the truth sees that it is always wrong.
    """
    return home.releases(SystemClock()).publish(
        name, partial(_write, mislabelled=mislabelled), meta={"previous": previous}
    )


def wrong_names(corpus: Corpus) -> Corpus:
    """Each intent under the next one's name."""
    names = sorted({utterance.intent for utterance in corpus.train})
    after = dict(zip(names, names[1:] + names[:1], strict=True))
    parts: dict[str, Any] = {
        part: tuple(replace(utterance, intent=after[utterance.intent]) for utterance in getattr(corpus, part))
        for part in ("train", "validation", "test")
    }
    return replace(corpus, **parts)


def _write(folder: Path, *, mislabelled: bool = False) -> None:
    import torch

    from failsoft.models.embedded import Sizes, embedded_corpus
    from failsoft.models.encoding import encode_corpus
    from failsoft.models.labels import LabelSet
    from failsoft.models.learning import loss_of, make_optimizer, to_tensors
    from failsoft.models.network import build, network_config, save_weights
    from failsoft.models.recipe import recipe_named
    from failsoft.models.tokens import TextCodec

    torch.set_num_threads(1)
    torch.manual_seed(0)
    corpus = embedded_corpus(seed=0, sizes=Sizes(train=1500, validation=200, test=100))
    corpus = wrong_names(corpus) if mislabelled else corpus
    recipe, labels = recipe_named("demo"), LabelSet.of(corpus)
    codec = TextCodec.train([utterance.text for utterance in corpus.train], recipe.codec)
    config = network_config(recipe, codec, labels)
    model, chance = build(config), torch.Generator().manual_seed(0)
    split, optimizer = encode_corpus(corpus.train, codec, labels), make_optimizer(model, recipe)
    for _ in range(BATCHES):
        rows = torch.randint(len(split), (32,), generator=chance).numpy()
        optimizer.zero_grad()
        loss_of(model, to_tensors(split.take(rows)), recipe).backward()
        optimizer.step()
    save_weights(model, folder / Role.WEIGHTS)
    config.save(folder / Role.NETWORK)
    codec.save(folder / Role.CODEC)
    labels.save(folder / Role.LABELS)
    _write_fallback(folder, corpus)
    _write_measured(folder, corpus.validation)


def _write_fallback(folder: Path, corpus: Corpus) -> None:
    from failsoft.models.gbdt import GbdtIntent
    from failsoft.models.rules import rules_from_corpus
    from failsoft.serving.intake.sanitizer import TextPolicy

    GbdtIntent.train(corpus.train).save(folder / Role.GBDT)
    (folder / Role.RULES).write_text(rules_from_corpus(corpus), "utf-8")
    (folder / Role.TEXT_POLICY).write_text(TextPolicy().to_json(), "utf-8")


def _write_measured(folder: Path, validation: Sequence[Utterance]) -> None:
    from failsoft.models.predictor import IntentNerPredictor
    from failsoft.serving.defence import QualityPolicy, judge

    roles = {role.value: folder / role for role in (Role.WEIGHTS, Role.NETWORK, Role.CODEC, Role.LABELS)}
    scores = IntentNerPredictor.load_roles(roles).predict([utterance.text for utterance in validation])
    judged = judge(scores.intent_logits_BC, CALIBRATION.temperature, QualityPolicy())
    right = [
        scores.intents[int(row.argmax())] == one.intent
        for row, one in zip(scores.intent_logits_BC, validation, strict=True)
    ]
    entropies = [judgement.entropy for judgement in judged]
    baseline = Baseline(
        samples=len(judged),
        weak_fraction=sum(judgement.outcome is Outcome.WEAK for judgement in judged) / len(judged),
        entropy_mean=statistics.fmean(entropies),
        entropy_std=statistics.pstdev(entropies),
        logit_std=float(scores.intent_logits_BC.std()),
        oov_fraction=float(scores.oov_fraction_B.mean()),
        label_mix={},
        accuracy=statistics.fmean(right),
    )
    golden = tuple(
        Golden(text=utterance.text, intent=scores.intents[int(row.argmax())], confidence=judgement.confidence)
        for utterance, row, judgement in zip(validation[:5], scores.intent_logits_BC, judged, strict=False)
    )
    write_json(folder, Role.CALIBRATION, CALIBRATION)
    write_json(folder, Role.BASELINE, baseline)
    write_golden(folder, golden)
