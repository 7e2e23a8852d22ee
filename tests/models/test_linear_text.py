"""A linear classifier of scikit-learn, taken apart into arrays, answers with the same probabilities."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from failsoft.errors import ConfigError, CorpusError
from failsoft.models.linear_text import ARRAYS_FILE, META_FILE, LinearText
from failsoft.models.text_features import Reading
from failsoft.serving.fallback.ladder import FallbackLadder
from failsoft.serving.fallback.plain_rungs import ConstantRung
from failsoft.serving.fallback.rungs import GbdtRung
from tests.models.toys import toy_corpus

_WHY = "the models of these tests are scikit-learn's: pip install scikit-learn"
text = pytest.importorskip("sklearn.feature_extraction.text", reason=_WHY)
linear = pytest.importorskip("sklearn.linear_model", reason=_WHY)
bayes = pytest.importorskip("sklearn.naive_bayes", reason=_WHY)
make_pipeline = pytest.importorskip("sklearn.pipeline", reason=_WHY).make_pipeline

CountVectorizer, HashingVectorizer = text.CountVectorizer, text.HashingVectorizer
TfidfTransformer, TfidfVectorizer = text.TfidfTransformer, text.TfidfVectorizer
LogisticRegression, SGDClassifier = linear.LogisticRegression, linear.SGDClassifier
BernoulliNB, ComplementNB, MultinomialNB = bayes.BernoulliNB, bayes.ComplementNB, bayes.MultinomialNB

SAMPLES = toy_corpus().train[:40]
TEXTS = [utterance.text for utterance in SAMPLES]
SEVERAL = [utterance.intent for utterance in SAMPLES]
TWO = ["first" if intent == SEVERAL[0] else "other" for intent in SEVERAL]
VECTORIZERS: dict[str, Any] = {
    "tf-idf of words and pairs": lambda: TfidfVectorizer(ngram_range=(1, 2)),
    "tf-idf inside words": lambda: TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True),
    "tf-idf of characters": lambda: TfidfVectorizer(analyzer="char", ngram_range=(1, 3), lowercase=False),
    "hashed": lambda: HashingVectorizer(n_features=1024, ngram_range=(1, 2)),
    "hashed into few": lambda: HashingVectorizer(n_features=7, norm="l1", binary=True),
    "hashed without signs": lambda: HashingVectorizer(n_features=512, alternate_sign=False, norm=None),
    "counts": lambda: CountVectorizer(strip_accents="unicode", stop_words="english", binary=True),
}
MODELS: dict[str, Any] = {
    "logistic": lambda: LogisticRegression(max_iter=5),
    "sgd": lambda: SGDClassifier(loss="log_loss", max_iter=3, tol=None, random_state=0),
    "multinomial": MultinomialNB,
    "complement": ComplementNB,
}
SIGNED = {"hashed", "hashed into few"}
ODD = ["", "\ufffd", "a" * 300, "Ünïcode ß naïve ﬁ", "play  some \t jazz", "\ud800 half", "İ", *TEXTS[:5]]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # toys need no more rounds


def whole(said: str) -> str:
    """Scikit-learn can't hash half a character; the sanitizer lets none pass."""
    return said.encode("utf-8", "replace").decode()


PAIRS = [
    (vectorizer, model, labels)
    for vectorizer in VECTORIZERS
    for model in MODELS
    for labels in (("several", "two") if vectorizer == "tf-idf of words and pairs" else ("several",))
    if not (vectorizer in SIGNED and model in {"multinomial", "complement"})  # naive Bayes takes no negative counts
]


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[Any, LinearText]:
    vectorizer, model, labels = request.param
    pipeline = make_pipeline(VECTORIZERS[vectorizer](), MODELS[model]())
    pipeline.fit(TEXTS, SEVERAL if labels == "several" else TWO)
    return pipeline, LinearText.of_sklearn(pipeline, texts=TEXTS)


def test_probabilities_are_those_of_the_pipeline(pair: tuple[Any, LinearText]) -> None:
    pipeline, ours = pair
    asked = [whole(said) for said in ODD]
    found = np.stack([ours.probabilities(said) for said in asked])
    np.testing.assert_allclose(found, pipeline.predict_proba(asked), rtol=0, atol=1e-12)
    assert list(ours.labels) == list(pipeline.classes_)


@pytest.fixture(scope="module")
def hashed() -> tuple[Any, LinearText]:
    pipeline = make_pipeline(VECTORIZERS["hashed"](), MODELS["logistic"]()).fit(TEXTS, SEVERAL)
    return pipeline, LinearText.of_sklearn(pipeline, texts=TEXTS)


def test_any_text_is_hashed_as_scikit_learn_hashes_it(hashed: tuple[Any, LinearText]) -> None:
    vectorizer, reading = hashed[0].steps[0][1], hashed[1].reading

    @settings(max_examples=150)
    @given(st.text(max_size=60))
    @example("a b c d e f g")
    def holds(said: str) -> None:
        row = vectorizer.transform([whole(said)])
        columns, values = reading.row(whole(said), {}, None)
        kept = [(c, v) for c, v in zip(columns, values, strict=True) if v]
        wanted = [(int(c), float(v)) for c, v in zip(row.indices, row.data, strict=True) if v]
        assert [c for c, _ in kept] == [c for c, _ in wanted]
        np.testing.assert_allclose([v for _, v in kept], [v for _, v in wanted], atol=1e-12)

    holds()


def test_counts_with_a_tfidf_transformer_behind_them_are_one_reading() -> None:
    pipeline = make_pipeline(CountVectorizer(), TfidfTransformer(sublinear_tf=True), LogisticRegression(max_iter=5))
    pipeline.fit(TEXTS, SEVERAL)
    ours = LinearText.of_sklearn(pipeline, texts=TEXTS)
    np.testing.assert_allclose(ours.probabilities(TEXTS[0]), pipeline.predict_proba(TEXTS[:1])[0], atol=1e-12)


def test_what_was_saved_answers_bit_for_bit_and_holds_no_pickle(hashed: tuple[Any, LinearText], tmp_path: Path) -> None:
    ours = hashed[1]
    ours.save(tmp_path / "linear")
    again = LinearText.load(tmp_path / "linear")
    for said in ODD:
        assert again.probabilities(said).tolist() == ours.probabilities(said).tolist()
        assert again.predict_one(said) == ours.predict_one(said)
    with np.load(tmp_path / "linear" / ARRAYS_FILE, allow_pickle=False) as arrays:
        assert all(arrays[name].dtype == np.float64 for name in arrays.files)


def test_a_text_of_unknown_words_gets_no_answer_and_a_half_known_one_less_confidence(
    hashed: tuple[Any, LinearText],
) -> None:
    ours = hashed[1]
    assert [ours.predict_one(said) for said in ("", "zzz qqq", "\ufffd")] == [None, None, None]
    known, half = ours.predict_one(TEXTS[0]), ours.predict_one(TEXTS[0] + " zzz" * len(TEXTS[0].split()))
    assert known is not None
    assert half is not None
    assert (known.known_fraction, half.known_fraction) == (1.0, 0.5)
    assert half.confidence < known.confidence


def test_it_is_a_rung_under_a_name_of_its_own(hashed: tuple[Any, LinearText]) -> None:
    rung = GbdtRung(hashed[1], name="linear", min_confidence=0.0)
    ladder = FallbackLadder([rung, ConstantRung("unknown")])
    answer = ladder.answer(TEXTS[0], "late")
    assert (answer.source, answer.output) == ("linear", SEVERAL[0])
    assert ladder.answer("zzz", "late").source == "constant"


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((lambda: TfidfVectorizer(tokenizer=str.split, token_pattern=None), LogisticRegression), "reads by tokenizer"),
        ((lambda: CountVectorizer(strip_accents="ascii"), LogisticRegression), "strip_accents=ascii"),
        ((CountVectorizer, BernoulliNB), "the classifier is a BernoulliNB"),
        ((CountVectorizer, lambda: SGDClassifier(loss="hinge", max_iter=3, tol=None)), "is a SGDClassifier"),
        ((TfidfTransformer, LogisticRegression), "the first step is a TfidfTransformer"),
        ((TfidfVectorizer, TfidfTransformer, LogisticRegression), "only one TfidfTransformer can be taken along"),
    ],
)
def test_what_arrays_can_not_hold_is_refused_in_words(steps: tuple[Any, ...], why: str) -> None:
    pipeline = make_pipeline(*(step() for step in steps))
    counts = CountVectorizer().fit_transform(TEXTS)
    pipeline.fit(counts if steps[0] is TfidfTransformer else TEXTS, SEVERAL)
    with pytest.raises(ConfigError, match=why):
        LinearText.of_sklearn(pipeline, texts=TEXTS)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"labels": ["a", "b"]},
        {"link": "none"},
        {"reading": {}},
        {"reading": {"ngram_range": [3, 1], "stop_words": []}},
        {"known": None},
    ],
)
def test_a_damaged_page_of_settings_is_refused(
    hashed: tuple[Any, LinearText], tmp_path: Path, change: dict[str, Any]
) -> None:
    hashed[1].save(tmp_path)
    body = json.loads((tmp_path / META_FILE).read_text("utf-8"))
    (tmp_path / META_FILE).write_text(json.dumps(body | change), "utf-8")
    with pytest.raises(CorpusError, match=r"export it again|publish it again"):
        LinearText.load(tmp_path)


def test_damaged_arrays_are_refused(hashed: tuple[Any, LinearText], tmp_path: Path) -> None:
    hashed[1].save(tmp_path)
    with np.load(tmp_path / ARRAYS_FILE) as arrays:
        held = {name: arrays[name] for name in arrays.files}
    np.savez(tmp_path / ARRAYS_FILE, **(held | {"bias": held["bias"] * math.nan}))
    with pytest.raises(CorpusError, match="a weight is not finite"):
        LinearText.load(tmp_path)
    for body in (b"", b"no arrays", (tmp_path / ARRAYS_FILE).read_bytes()[:90]):
        (tmp_path / ARRAYS_FILE).write_bytes(body)
        with pytest.raises(CorpusError, match="publish it again"):
            LinearText.load(tmp_path)
    with pytest.raises(CorpusError, match="publish it again"):
        LinearText.load(tmp_path / "absent")


def test_a_reading_that_scikit_learn_has_not_is_refused() -> None:
    for wrong in ({"analyzer": "own"}, {"norm": "l3"}, {"ngram_range": (0, 1)}, {"hashed_into": 0}):
        with pytest.raises(ConfigError):
            Reading(**wrong)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(\w+\s*)+x", "can take for ever"),
        (r"[a-z]+\s*[a-z]*x", "can take for ever"),
        ("(", "which is not a pattern"),
        (r"(\w)(\w+)", "has 2 groups"),
        (7, "give a pattern"),
        (None, "give a pattern"),
    ],
)
def test_a_release_can_not_bring_a_pattern_that_holds_the_gateway_up(
    hashed: tuple[Any, LinearText], tmp_path: Path, pattern: Any, why: str
) -> None:
    hashed[1].save(tmp_path)
    body = json.loads((tmp_path / META_FILE).read_text("utf-8"))
    body["reading"] |= {"analyzer": "word", "token_pattern": pattern}
    (tmp_path / META_FILE).write_text(json.dumps(body), "utf-8")
    with pytest.raises(CorpusError, match=why):
        LinearText.load(tmp_path)


@pytest.mark.parametrize(
    "pattern",
    [r"(?u)\b\w\w+\b", r"(?u)\b\w+\b", r"(?u)\b\w+(?:[-'’]\w+)*\b", r"\b[a-zA-Z]{3,}\b", r"[^\s]+", r"\w+|[^\w\s]"],
)
def test_usual_patterns_of_tokens_are_taken(pattern: str) -> None:
    assert list(Reading(token_pattern=pattern).ngrams("play some jazz"))


def test_where_no_class_is_likely_all_are_as_likely_as_scikit_learn_has_it() -> None:
    pipeline = make_pipeline(CountVectorizer(), MODELS["sgd"]()).fit(TEXTS, SEVERAL)
    pipeline[-1].intercept_[:] = -1e4  # each against the rest: all probabilities are 0, and their share is 0 / 0
    model = LinearText.of_sklearn(pipeline, texts=TEXTS)
    np.testing.assert_allclose(model.probabilities(TEXTS[0]), pipeline.predict_proba(TEXTS[:1])[0])


def test_sums_that_are_no_numbers_are_no_answer() -> None:
    model = LinearText.of_sklearn(
        make_pipeline(CountVectorizer(), MODELS["logistic"]()).fit(TEXTS, SEVERAL), texts=TEXTS
    )
    assert model.predict_one(TEXTS[0]) is not None
    model._bias_C[:] = np.inf
    assert model.predict_one(TEXTS[0]) is None


def test_a_pipeline_that_answers_otherwise_than_its_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_against_the_rest(self: Any, rows: Any) -> Any:
        """As releases of scikit-learn did with ``multi_class="ovr"``."""
        odds = 1.0 / (1.0 + np.exp(-self.decision_function(rows)))
        return odds / odds.sum(axis=1, keepdims=True)

    monkeypatch.setattr(LogisticRegression, "predict_proba", one_against_the_rest)
    pipeline = make_pipeline(CountVectorizer(), LogisticRegression(max_iter=5)).fit(TEXTS, SEVERAL)
    with pytest.raises(ConfigError, match="a setting of it is not known here"):
        LinearText.of_sklearn(pipeline, texts=TEXTS)
