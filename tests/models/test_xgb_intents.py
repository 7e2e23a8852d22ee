"""XGBoost stands on the rung of LightGBM: same protocol, same caution, a file that holds no code."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from failsoft.errors import ConfigError, CorpusError
from failsoft.models.hashed_words import META_FILE, GbdtConfig
from failsoft.models.xgb_intents import MODEL_FILE, XgbIntent, XgbRows
from failsoft.serving.fallback.ladder import FallbackLadder
from failsoft.serving.fallback.plain_rungs import ConstantRung, FunctionRung
from failsoft.serving.fallback.rungs import GbdtRung
from tests.models.foreign.served import loads_as_recorded, reopened
from tests.models.toys import toy_corpus
from tests.serving.own_world import OwnWorld

xgboost = pytest.importorskip("xgboost", reason="needs the extra: pip install 'failsoft[xgboost]'")


@pytest.fixture(scope="module")
def trees() -> XgbIntent:
    return XgbIntent.train(toy_corpus().train[:400], GbdtConfig(buckets=512, rounds=20))


def test_it_learns_and_what_was_saved_answers_the_same(trees: XgbIntent, tmp_path: Path) -> None:
    trees.save(tmp_path / "xgb")
    again, samples = XgbIntent.load(tmp_path / "xgb"), toy_corpus().test
    answers = [trees.predict_one(sample.text) for sample in samples]
    assert [again.predict_one(sample.text) for sample in samples] == answers
    right = sum(a is not None and a.intent == s.intent for a, s in zip(answers, samples, strict=True))
    assert right / len(samples) >= 0.8


def test_the_same_utterances_give_the_same_trees(trees: XgbIntent) -> None:
    again = XgbIntent.train(toy_corpus().train[:400], GbdtConfig(buckets=512, rounds=20))
    rows = np.eye(5, 512, dtype=np.float32)
    assert again.predict_features(rows).tolist() == trees.predict_features(rows).tolist()


@pytest.mark.parametrize("text", ["", "   ", "\U0001f525\U0001f525", "xyzzy plugh", "\ud83d"])
def test_what_it_never_saw_gets_no_answer(trees: XgbIntent, text: str) -> None:
    assert trees.predict_one(text) is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_features_that_are_no_numbers_are_refused(trees: XgbIntent, bad: float) -> None:
    with pytest.raises(CorpusError, match="feature 0 of row 0"):
        trees.predict_features(np.full((1, 512), bad))
    with pytest.raises(CorpusError, match="shape"):
        trees.predict_features(np.zeros((1, 3)))


def test_it_is_a_rung_under_a_name_of_its_own(trees: XgbIntent) -> None:
    ladder = FallbackLadder([GbdtRung(trees, name="xgboost", min_confidence=0.0), ConstantRung("unknown")])
    sample = toy_corpus().train[0]
    answer = ladder.answer(sample.text, "late")
    assert (answer.source, answer.output) == ("xgboost", sample.intent)
    assert ladder.answer("xyzzy", "late").source == "constant"


SPOILT: dict[str, Callable[[Path], object]] = {
    "no model": lambda folder: (folder / MODEL_FILE).unlink(),
    "another file": lambda folder: (folder / MODEL_FILE).write_bytes(b"no trees"),
    "a torn model": lambda folder: (folder / MODEL_FILE).write_bytes((folder / MODEL_FILE).read_bytes()[:3000]),
    "no settings": lambda folder: (folder / META_FILE).unlink(),
    "other settings": lambda folder: (folder / META_FILE).write_text(json.dumps({"format": 1}), "utf-8"),
    "a later format": lambda folder: (folder / META_FILE).write_text(json.dumps({"format": 9}), "utf-8"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_what_is_damaged_is_refused_in_words(trees: XgbIntent, tmp_path: Path, how: str) -> None:
    trees.save(tmp_path)
    SPOILT[how](tmp_path)
    with pytest.raises(CorpusError, match=r"publish it again|train again"):
        XgbIntent.load(tmp_path)


def test_one_intent_is_nothing_to_tell_apart() -> None:
    with pytest.raises(CorpusError, match="two intents or more"):
        XgbIntent.train(toy_corpus().train[:1])


def rows_model(path: Path, labels: np.ndarray, **parameters: Any) -> Path:
    rows = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] * 5, dtype=np.float32)
    asked = {"nthread": 1, "min_child_weight": 0.0, "eta": 1.0, "verbosity": 0} | parameters
    xgboost.train(asked, xgboost.DMatrix(rows, np.tile(labels, 5), nthread=1), 5).save_model(str(path))
    return path


def test_a_model_of_rows_of_numbers_is_a_rung_too(tmp_path: Path) -> None:
    price = XgbRows.load(rows_model(tmp_path / "price.json", np.array([10.0, 20.0, 30.0, 40.0])))
    two = rows_model(tmp_path / "two.ubj", np.array([0, 0, 1, 1]), objective="binary:logistic")
    three = rows_model(tmp_path / "three.ubj", np.array([0, 1, 2, 2]), objective="multi:softprob", num_class=3)
    assert price([1.0, 0.0]) == pytest.approx(30.0, abs=1.0)
    assert [XgbRows.load(two, ["no", "yes"])(row) for row in ([0.0, 1.0], [1.0, 1.0])] == ["no", "yes"]
    assert [XgbRows.load(three, "abc")(row) for row in ([0.0, 0.0], [0.0, 1.0], [1.0, 1.0])] == ["a", "b", "c"]
    ladder = FallbackLadder([FunctionRung("trees", price), ConstantRung(25.0)], probes=[None])
    odd: list[Any] = [[0.0], [0.0, math.nan], [0.0, math.inf], "ab", None]
    assert [ladder.answer(item, "late").source for item in odd[:4]] == ["constant"] * 4
    assert ladder.answer([1.0, 1.0], "late").source == "trees"


def test_a_file_of_others_and_an_absent_library_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.json").write_text("{}", "utf-8")
    with pytest.raises(CorpusError, match="holds no XGBoost model"):
        XgbRows.load(tmp_path / "model.json")
    with pytest.raises(CorpusError, match="holds no XGBoost model"):
        XgbRows.load(tmp_path / "absent.json")
    import sys

    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ConfigError, match=r"pip install 'failsoft\[xgboost\]'"):
        XgbRows.load(tmp_path / "model.json")


@pytest.mark.anyio
async def test_the_example_with_both_fallbacks_answers_by_them_when_its_model_is_ill(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="trains the linear model: pip install scikit-learn")
    there: Any = importlib.import_module("docs.own_fallbacks")
    bundle = there.publish(tmp_path)
    loads_as_recorded(there.config, reopened(bundle, tmp_path))
    world = OwnWorld(there.config, tmp_path)
    text, intent = there.TEXTS[0], there.INTENTS[0]
    assert (await world.post({"text": text})).json()["source"] == "primary"
    model: Any = world.arm.model
    model.linear._weights_FC *= math.nan
    answer = (await world.post({"text": text})).json()
    assert (answer["output"], answer["source"]) in {(intent, "xgboost"), (intent, "linear")}
    assert (await world.post({"text": "zzz qqq"})).json()["source"] == "constant"


CLASSIFIERS = {"binary:logistic": 2, "binary:logitraw": 2, "binary:hinge": 2, "multi:softprob": 3, "multi:softmax": 3}


@pytest.mark.parametrize("objective", CLASSIFIERS)
@pytest.mark.parametrize("stopped_early", [False, True])
def test_each_kind_of_classifier_names_the_class_that_xgboost_itself_predicts(
    tmp_path: Path, objective: str, stopped_early: bool
) -> None:
    classes, rng = CLASSIFIERS[objective], np.random.default_rng(0)
    rows = rng.normal(size=(60, 3)).astype(np.float32)
    labels = rows[:, :classes].argmax(1)
    asked = {"objective": objective, "nthread": 1, "eta": 1.0} | ({"num_class": 3} if classes == 3 else {})
    if objective == "binary:logitraw":
        asked["base_score"] = 0.5
    data = xgboost.DMatrix(rows, rng.permutation(labels) if stopped_early else labels, nthread=1)
    booster = xgboost.train(asked, data, 20)
    if stopped_early:
        booster.best_iteration = 0
    path = tmp_path / "trees.json"
    booster.save_model(str(path))
    given = booster.predict(xgboost.DMatrix(rows, nthread=1), iteration_range=(0, 1 if stopped_early else 0))
    least = 0.0 if objective == "binary:logitraw" else 0.5
    due = given.argmax(1) if given.ndim == 2 else given.astype(int) if classes == 3 else (given >= least).astype(int)
    trees = XgbRows.load(path, "abc"[:classes])
    assert "".join(map(trees, rows)) == "".join("abc"[place] for place in due)
    for wrong in ("a", "abcd"):
        with pytest.raises(ConfigError, match=f"tell {classes} classes apart, and {len(wrong)} labels"):
            XgbRows.load(path, wrong)


def test_labels_of_what_gives_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the objective reg:squarederror gives no classes; leave labels out"):
        XgbRows.load(rows_model(tmp_path / "price.json", np.array([1.0, 2.0, 3.0, 4.0])), ["no", "yes"])
