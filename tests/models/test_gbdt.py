"""The tree fallback: good on what it knows, silent on what it does not."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from failsoft.errors import ConfigError, CorpusError
from failsoft.health.clock import SystemClock
from failsoft.models.corpora import load_corpus
from failsoft.models.corpus import Utterance
from failsoft.models.gbdt import GbdtIntent
from failsoft.models.hashed_words import GbdtConfig
from tests.models.toys import toy_corpus


@pytest.fixture(scope="module")
def trees() -> GbdtIntent:
    return GbdtIntent.train(toy_corpus().train, GbdtConfig(rounds=30))


def test_it_learns_the_corpus(trees: GbdtIntent) -> None:
    answers = [trees.predict_one(sample.text) for sample in toy_corpus().test]
    right = sum(
        answer is not None and answer.intent == sample.intent
        for answer, sample in zip(answers, toy_corpus().test, strict=True)
    )
    assert right / len(answers) >= 0.9


@pytest.mark.parametrize("text", ["", "   ", "\U0001f525\U0001f525", "xyzzy plugh", "\ud83d"])
def test_what_it_never_saw_gets_no_answer(trees: GbdtIntent, text: str) -> None:
    assert trees.predict_one(text) is None


def test_its_confidence_falls_with_the_share_of_known_words(trees: GbdtIntent) -> None:
    known, half = trees.predict_one("play some jazz music"), trees.predict_one("play xyzzy jazz plugh")
    assert known is not None
    assert half is not None
    assert known.known_fraction == 1.0
    assert half.known_fraction == 0.5
    assert half.confidence <= 0.5 < known.confidence


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_features_that_are_no_numbers_are_refused(trees: GbdtIntent, bad: float) -> None:
    features = np.zeros((1, trees.config.buckets))
    features[0, 7] = bad
    with pytest.raises(CorpusError, match="feature 7 of row 0"):
        trees.predict_features(features)
    with pytest.raises(CorpusError, match="shape"):
        trees.predict_features(np.zeros((1, 3)))


def test_saved_trees_answer_the_same_in_another_process(trees: GbdtIntent, tmp_path: Path) -> None:
    """Python's own hash differs from process to process; ours must not."""
    trees.save(tmp_path / "gbdt")
    text = toy_corpus().test[0].text
    code = (
        "import sys, pathlib; from failsoft.models.gbdt import GbdtIntent; "
        "answer = GbdtIntent.load(pathlib.Path(sys.argv[1])).predict_one(sys.argv[2]); "
        "print(answer.intent, repr(answer.confidence), 'torch' in sys.modules)"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "gbdt"), text]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    answer = trees.predict_one(text)
    assert answer is not None
    assert done.stdout.split() == [answer.intent, repr(answer.confidence), "False"]


def test_training_twice_gives_the_same_trees(tmp_path: Path) -> None:
    for name in ("first", "second"):
        GbdtIntent.train(toy_corpus().train[:300], GbdtConfig(rounds=5)).save(tmp_path / name)
    assert (tmp_path / "first" / "model.txt").read_bytes() == (tmp_path / "second" / "model.txt").read_bytes()


def test_a_folder_that_holds_no_trees_is_refused(trees: GbdtIntent, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="does not hold the tree fallback"):
        GbdtIntent.load(tmp_path / "absent")
    trees.save(tmp_path / "torn")
    model = tmp_path / "torn" / "model.txt"
    model.write_text(model.read_text("utf-8")[:200], "utf-8")
    with pytest.raises(CorpusError, match="does not hold the tree fallback"):
        GbdtIntent.load(tmp_path / "torn")


def test_one_intent_is_nothing_to_tell_apart() -> None:
    with pytest.raises(CorpusError, match="two intents or more"):
        GbdtIntent.train([Utterance(id="1", text="go", intent="a")])


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="leaves is 1"):
        GbdtConfig(leaves=1)
    with pytest.raises(ConfigError, match="min_known_fraction is nan"):
        GbdtConfig(min_known_fraction=float("nan"))


def test_half_of_the_answers_take_less_than_half_a_millisecond(trees: GbdtIntent) -> None:
    clock, took_s = SystemClock(), []
    for sample in toy_corpus().test:
        begun_s = clock.monotonic_s()
        trees.predict_one(sample.text)
        took_s.append(clock.monotonic_s() - begun_s)
    assert statistics.median(took_s) < 0.0005


def test_it_reaches_its_floor_on_snips(snips_dir: Path) -> None:
    corpus = load_corpus(snips_dir)
    trees = GbdtIntent.train(corpus.train)
    answers = [trees.predict_one(sample.text) for sample in corpus.test]
    right = sum(a is not None and a.intent == u.intent for a, u in zip(answers, corpus.test, strict=True))
    assert right / len(answers) >= 0.97
