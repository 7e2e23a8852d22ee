"""Answers from a trained network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.errors import CorpusError, IncompatibleArtifactError
from failsoft.models.labels import LabelSet
from failsoft.models.network import build, save_weights
from failsoft.models.predictor import IntentNerPredictor, evaluate_predictor
from failsoft.models.tokens import TextCodec
from tests.models.toys import toy_corpus, toy_predictor


def parts(folder: Path, predictor: IntentNerPredictor) -> dict[str, Path]:
    paths = {name: folder / name for name in ("weights.safetensors", "network.json", "codec.json", "labels.json")}
    save_weights(predictor.model, paths["weights.safetensors"])
    predictor.model.config.save(paths["network.json"])
    predictor.codec.save(paths["codec.json"])
    predictor.labels.save(paths["labels.json"])
    return paths


def test_it_learns_the_corpus() -> None:
    quality = evaluate_predictor(toy_predictor(), toy_corpus().test)
    assert quality.intent_accuracy >= 0.9
    assert quality.slot_f1 >= 0.8


def test_it_doubts_what_it_cannot_read() -> None:
    def mean_confidence(texts: list[str]) -> float:
        logits = toy_predictor().predict(texts).intent_logits_BC
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return float((shares / shares.sum(axis=1, keepdims=True)).max(axis=1).mean())

    texts = [sample.text for sample in toy_corpus().test]
    unreadable = ["".join("\u4e00" if char.isalnum() else char for char in text) for text in texts]
    assert mean_confidence(texts) > 0.85
    assert mean_confidence(unreadable) < 0.5


def test_saved_parts_answer_as_before(tmp_path: Path) -> None:
    predictor, texts = toy_predictor(), [sample.text for sample in toy_corpus().test[:20]]
    loaded = IntentNerPredictor.load_roles(parts(tmp_path, predictor))
    ours, theirs = predictor.predict(texts), loaded.predict(texts)
    assert np.array_equal(ours.intent_logits_BC, theirs.intent_logits_BC)
    assert ours.spans == theirs.spans


def test_spans_point_into_the_text_and_have_a_confidence() -> None:
    scores = toy_predictor().predict(["PLAY   jazz  by THE foxes", "play jazz"])
    for text, spans in zip(("PLAY   jazz  by THE foxes", "play jazz"), scores.spans, strict=True):
        for span in spans:
            assert text[span.start : span.end].strip() == text[span.start : span.end] != ""
            assert 0.0 < span.confidence <= 1.0


@settings(max_examples=30)
@given(st.lists(st.text(st.characters(), max_size=60), max_size=5))
def test_any_strings_get_finite_answers(texts: list[str]) -> None:
    scores = toy_predictor().predict(texts)
    assert len(scores) == len(texts)
    assert scores.intent_logits_BC.shape == (len(texts), 10)
    assert np.isfinite(scores.intent_logits_BC).all()


def test_a_text_without_words_gets_an_answer_and_no_spans() -> None:
    scores = toy_predictor().predict(["", "  "])
    assert scores.spans == [[], []]
    assert scores.counts_B.tolist() == [0, 0]
    assert scores.oov_fraction_B.tolist() == [1.0, 1.0]


def test_the_size_of_a_batch_does_not_change_an_answer() -> None:
    texts = [sample.text for sample in toy_corpus().test[:30]]
    all_at_once, by_sevens = toy_predictor().predict(texts), toy_predictor().predict(texts, batch_size=7)
    assert np.allclose(all_at_once.intent_logits_BC, by_sevens.intent_logits_BC, atol=1e-5)
    assert all_at_once.best_intents() == by_sevens.best_intents()


def test_a_text_of_many_words_is_read_to_the_limit_and_says_so() -> None:
    scores = toy_predictor().predict(["play " * 600])
    assert scores.counts_B.tolist() == [512]
    assert scores.left_out_B.tolist() == [88]


def test_weights_that_are_no_numbers_show_in_the_logits_and_break_nothing() -> None:
    healthy = toy_predictor()
    ill = build(healthy.model.config)
    with torch.no_grad():
        ill.join.weight.fill_(torch.nan)
    scores = IntentNerPredictor(ill, healthy.codec, healthy.labels).predict(["play jazz"])
    assert np.isnan(scores.intent_logits_BC).all()
    assert len(scores.spans) == 1


def test_a_codec_of_another_model_never_reaches_the_embedding() -> None:
    healthy = toy_predictor()
    codec = TextCodec.train([f"word{n % 3000}" for n in range(6000)])
    with pytest.raises(CorpusError, match="outside 0"):
        IntentNerPredictor(healthy.model, codec, healthy.labels).predict(["word0 word1 word2 word2999"])


def test_parts_of_different_runs_are_refused_when_loading(tmp_path: Path) -> None:
    paths = parts(tmp_path, toy_predictor())
    LabelSet(("a", "b"), ()).save(paths["labels.json"])
    with pytest.raises(IncompatibleArtifactError, match="not of one training run"):
        IntentNerPredictor.load_roles(paths)
    del paths["codec.json"]
    with pytest.raises(IncompatibleArtifactError, match=r"no 'codec\.json'"):
        IntentNerPredictor.load_roles(paths)
