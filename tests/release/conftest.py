"""A small model that really learned something, trained once, and its parts in a folder."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from failsoft.artifacts.bundle import Bundle, Calibration, Role, write_golden, write_json
from failsoft.models.corpus import Corpus, CorpusReport, Utterance
from failsoft.models.encoding import encode_corpus
from failsoft.models.gbdt import GbdtIntent
from failsoft.models.hashed_words import GbdtConfig
from failsoft.models.labels import LabelSet
from failsoft.models.learning import loss_of, make_optimizer, to_tensors
from failsoft.models.network import IntentNer, build, network_config, save_weights
from failsoft.models.predictor import IntentNerPredictor
from failsoft.models.recipe import CodecConfig, Recipe, Shape
from failsoft.models.rules import rules_from_corpus
from failsoft.models.tokens import TextCodec
from failsoft.release.baseline import measure
from failsoft.release.calibrate import fit_temperature
from failsoft.release.candidate import ask_as_training, golden_answers
from failsoft.release.evidence import Evidence, slots_of

NOUNS = {
    "play_music": ("song", "album", "tune", "record", "melody", "playlist"),
    "get_weather": ("rain", "storm", "sun", "snow", "forecast", "wind"),
    "book_table": ("table", "dinner", "lunch", "restaurant", "seat", "bistro"),
}
FILLERS = ("please", "now", "today", "for", "me", "the", "a", "some", "in", "town", "tell", "find", "want", "i")
RECIPE = Recipe(
    name="tiny",
    epochs=6,
    batch_size=32,
    learning_rate=5e-3,
    shape=Shape(
        word_width=16, char_width=8, char_filters=16, width=32, layers=1, heads=2, inner_width=32, word_dropout=0.0
    ),
    codec=CodecConfig(min_count=1),
)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A model, and what it was trained on."""

    corpus: Corpus
    codec: TextCodec
    labels: LabelSet
    model: IntentNer


def sentences(count: int, seed: int) -> tuple[Utterance, ...]:
    chance, made = random.Random(seed), []
    for number in range(count):
        intent = chance.choice(sorted(NOUNS))
        noun = chance.choice(NOUNS[intent if chance.random() < 0.95 else chance.choice(sorted(NOUNS))])
        words = [*chance.sample(FILLERS, 4), noun]
        chance.shuffle(words)
        made.append(Utterance(id=f"toy#{seed}-{number}", text=" ".join(words), intent=intent))
    return tuple(made)


def toy_corpus() -> Corpus:
    return Corpus(
        name="toy",
        train=sentences(600, 1),
        validation=sentences(400, 2),
        test=sentences(50, 3),
        intents=tuple(sorted(NOUNS)),
        slots=("thing",),
        report=CorpusReport(),
    )


@pytest.fixture(scope="session")
def trained() -> Trained:
    torch.set_num_threads(1)
    corpus = toy_corpus()
    codec = TextCodec.train([utterance.text for utterance in corpus.train], RECIPE.codec)
    labels = LabelSet.of(corpus)
    split = encode_corpus(corpus.train, codec, labels)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = build(network_config(RECIPE, codec, labels))
        optimizer = make_optimizer(model, RECIPE)
        for _ in range(RECIPE.epochs):
            for start in range(0, len(split), RECIPE.batch_size):
                rows = np.arange(start, min(start + RECIPE.batch_size, len(split)))
                optimizer.zero_grad()
                loss_of(model, to_tensors(split.take(rows)), RECIPE).backward()
                optimizer.step()
    return Trained(corpus=corpus, codec=codec, labels=labels, model=model.eval())


def fill_release(folder: Path, trained: Trained, *, temperature_factor: float = 1.0) -> None:
    """Every part that the gates read, recorded by the path that training takes; with a temperature that is off."""
    GbdtIntent.train(trained.corpus.train, GbdtConfig(buckets=256, rounds=5)).save(folder / Role.GBDT)
    (folder / Role.RULES).write_text(rules_from_corpus(trained.corpus), "utf-8")
    texts = [utterance.text for utterance in trained.corpus.validation]
    intents = tuple(utterance.intent for utterance in trained.corpus.validation)
    logits = ask_as_training(trained.model, trained.codec, trained.labels, texts).intent_BC
    fitted = fit_temperature(logits, np.array([trained.labels.intent_index(intent) for intent in intents]))
    temperature = temperature_factor * fitted
    scores = IntentNerPredictor(trained.model, trained.codec, trained.labels).predict(texts)
    save_weights(trained.model, folder / Role.WEIGHTS)
    trained.model.config.save(folder / Role.NETWORK)
    trained.codec.save(folder / Role.CODEC)
    trained.labels.save(folder / Role.LABELS)
    write_json(folder, Role.CALIBRATION, Calibration(temperature=temperature))
    known = trained.codec.type_coverage(texts)
    write_json(folder, Role.BASELINE, measure(scores, temperature=temperature, known_types_fraction=known))
    write_golden(folder, golden_answers(texts, scores, temperature)[:8])
    evidence = Evidence(
        texts=tuple(texts),
        intents=intents,
        logits_BC=np.asarray(logits, dtype=np.float64),
        temperature=temperature,
        slots=slots_of(texts, scores),
    )
    (folder / Role.EVAL_TEXTS).write_text(evidence.to_json(), "utf-8")


@pytest.fixture
def release(tmp_path: Path, trained: Trained) -> Bundle:
    """A candidate folder of the toy model, to be spoiled at will."""
    folder = tmp_path / "candidate"
    folder.mkdir()
    fill_release(folder, trained)
    return Bundle(name="candidate", path=folder, digest="", meta={})
