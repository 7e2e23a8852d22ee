"""Linear text classifiers of scikit-learn as plain arrays: no pickle, no scikit-learn where they answer.

Its pickles run code when they are read, and are bound to its version. A pipeline of a vectorizer and a linear model is
three arrays and a page of settings, and answers from those with the same probabilities in a tenth of a millisecond.
"""

# F features, C classes

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError, CorpusError
from failsoft.health.json_object import json_value
from failsoft.models.hashed_words import GbdtAnswer, answer_of, words_of
from failsoft.models.text_features import Reading, as_config, reading_of

ARRAYS_FILE, META_FILE = "linear.npz", "linear.json"
_FORMAT = 1
_COMPARED = 20
"""Texts that are asked of the pipeline, too, when it is taken apart."""
_VECTORIZERS = ("CountVectorizer", "TfidfVectorizer", "HashingVectorizer")
_NAIVE = ("MultinomialNB", "ComplementNB")
_Floats = NDArray[np.float64]


class LinearText:
    """A vectorizer and a linear model; made by :meth:`of_sklearn` or :meth:`load`.

    Args:
        reading: how texts become features.
        labels: the C classes.
        weights_FC: a column for each class; a single one where the link is ``sigmoid``.
        bias_C: added to the sums.
        link: how sums become probabilities: ``softmax``, ``sigmoid`` (two classes), ``each`` (one against the rest).
        vocabulary: n-grams and their features; empty where they are hashed.
        idf_F: factors of features; None: none.
        known: words of the training texts.
    """

    def __init__(  # noqa: PLR0913 -- the parts of one file
        self,
        *,
        reading: Reading,
        labels: Sequence[str],
        weights_FC: _Floats,
        bias_C: _Floats,
        link: str,
        vocabulary: Mapping[str, int],
        idf_F: _Floats | None,
        known: frozenset[str],
    ) -> None:
        self.reading, self.labels, self.known = reading, tuple(labels), known
        self._weights_FC, self._bias_C, self._link = weights_FC, bias_C, link
        self._vocabulary, self._idf_F = vocabulary, idf_F

    @classmethod
    def of_sklearn(cls, pipeline: Any, *, texts: Sequence[str]) -> LinearText:
        """Take a fitted pipeline apart: a vectorizer, a ``TfidfTransformer`` if there is one, and a linear classifier.

        Args:
            pipeline: of ``CountVectorizer``, ``TfidfVectorizer`` or ``HashingVectorizer``; and ``LogisticRegression``,
                ``SGDClassifier(loss="log_loss")``, ``MultinomialNB`` or ``ComplementNB``.
            texts: it was fitted on. Their words are kept, so that an answer to a text of unknown words is none.

        Raises:
            ConfigError: a part is another one, reads by code of its own, or the whole answers otherwise than its parts.
        """
        vectorizer, *between, model = [part for _, part in pipeline.steps]
        reading = _with_transformer(_reading_of(vectorizer), between)
        idf = getattr(between[0] if between else vectorizer, "idf_", None)
        weights_CF, bias_C, link = _linear(model)
        vocabulary = getattr(vectorizer, "vocabulary_", {})
        found = cls(
            reading=reading,
            labels=[str(label) for label in model.classes_],
            weights_FC=np.ascontiguousarray(weights_CF.T, dtype=np.float64),
            bias_C=np.asarray(bias_C, dtype=np.float64),
            link=link,
            vocabulary={str(gram): int(column) for gram, column in vocabulary.items()},
            idf_F=None if idf is None else np.asarray(idf, dtype=np.float64),
            known=frozenset(word for text in texts for word in words_of(text, reading.max_chars)),
        )
        found._refuse_another_opinion(pipeline, [text for text in texts if len(text) <= reading.max_chars][:_COMPARED])
        return found

    def _refuse_another_opinion(self, pipeline: Any, texts: Sequence[str]) -> None:
        """What a setting or release of scikit-learn makes of the same weights is not guessed at."""
        for text in texts:
            own_C, its_C = self.probabilities(text), pipeline.predict_proba([text])[0]
            if not np.allclose(own_C, its_C, atol=1e-4, equal_nan=True):
                raise ConfigError(
                    f"the pipeline gives {text[:40]!r} the probabilities {np.round(its_C, 4)[:5]}, its weights alone "
                    f"{np.round(own_C, 4)[:5]}: a setting of it is not known here; leave its parts at their defaults"
                )

    def probabilities(self, text: str) -> _Floats:
        """As the pipeline's ``predict_proba([text])[0]``, up to rounding (C,)."""
        columns, values = self.reading.row(text, self._vocabulary, self._idf_F)
        sums_C = values @ self._weights_FC[columns] + self._bias_C
        with np.errstate(over="ignore", invalid="ignore"):  # of weights so large that no sum of them is a number
            if self._link == "softmax":
                powers_C = np.exp(sums_C - sums_C.max())
                return np.asarray(powers_C / powers_C.sum())
            sure_C = 1.0 / (1.0 + np.exp(-sums_C))
        if self._link == "sigmoid":
            return np.array([1.0 - sure_C[0], sure_C[0]])
        total = sure_C.sum()
        return np.full_like(sure_C, 1.0 / len(sure_C)) if total == 0.0 else np.asarray(sure_C / total)

    def predict_one(self, text: str) -> GbdtAnswer | None:
        """The likeliest class of any string; None where no word of it was seen in training, or sums are no numbers."""
        words = words_of(text, self.reading.max_chars)
        return answer_of(
            words,
            known=self.known,
            min_known_fraction=0.0,
            labels=self.labels,
            probabilities=lambda: self.probabilities(text),
        )

    def save(self, folder: Path) -> None:
        """Write arrays without objects, and JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        idf = {} if self._idf_F is None else {"idf": self._idf_F}
        np.savez(folder / ARRAYS_FILE, allow_pickle=False, weights=self._weights_FC, bias=self._bias_C, **idf)
        body = {
            "format": _FORMAT,
            "reading": asdict(self.reading),
            "labels": self.labels,
            "link": self._link,
            "vocabulary": sorted(self._vocabulary, key=self._vocabulary.__getitem__),
            "known": sorted(self.known),
        }
        (folder / META_FILE).write_text(json.dumps(body), "utf-8")

    @classmethod
    def load(cls, folder: Path) -> LinearText:
        """Read what :meth:`save` wrote; neither file can carry code.

        Raises:
            CorpusError: a file is absent, not such a file, or one does not fit the other.
        """
        try:
            body = json_value((folder / META_FILE).read_text("utf-8"))
            if body["format"] != _FORMAT:
                raise CorpusError(f"{folder} has format {body['format']}, this code reads {_FORMAT}; export it again")
            with (folder / ARRAYS_FILE).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                held = {name: np.asarray(arrays[name], dtype=np.float64) for name in arrays.files}
            loaded = cls(
                reading=as_config(body["reading"]),
                labels=body["labels"],
                weights_FC=held["weights"],
                bias_C=held["bias"],
                link=body["link"],
                vocabulary={gram: column for column, gram in enumerate(body["vocabulary"])},
                idf_F=held.get("idf"),
                known=frozenset(body["known"]),
            )
            loaded._refuse_misfits()
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, ConfigError) as error:
            raise CorpusError(f"{folder} does not hold a linear fallback ({error!r}); publish it again") from error
        return loaded

    def _refuse_misfits(self) -> None:
        features = self.reading.hashed_into or len(self._vocabulary)
        sums = 1 if self._link == "sigmoid" else len(self.labels)
        idf = features if self._idf_F is None else len(self._idf_F)
        shapes = (self._weights_FC.shape, self._bias_C.shape, idf)
        if self._link not in {"softmax", "sigmoid", "each"} or len(self.labels) < 2:
            raise ValueError(f"link is {self._link!r} over the classes {self.labels}")
        if shapes != ((features, sums), (sums,), features):
            raise ValueError(f"{shapes} are no weights of {features} features and {len(self.labels)} classes")
        held = [self._weights_FC, self._bias_C] + ([] if self._idf_F is None else [self._idf_F])
        if not all(np.isfinite(array).all() for array in held):
            raise ValueError("a weight is not finite")


def _reading_of(vectorizer: Any) -> Reading:
    if type(vectorizer).__name__ not in _VECTORIZERS:
        raise ConfigError(f"the first step is a {type(vectorizer).__name__}; use one of {', '.join(_VECTORIZERS)}")
    return reading_of(vectorizer)


def _with_transformer(reading: Reading, between: Sequence[Any]) -> Reading:
    """A ``TfidfTransformer`` behind counts does what a ``TfidfVectorizer`` does by itself."""
    if not between:
        return reading
    if len(between) > 1 or type(between[0]).__name__ != "TfidfTransformer" or reading.norm is not None:
        names = ", ".join(type(part).__name__ for part in between)
        raise ConfigError(f"between counts and classifier stands {names}; only one TfidfTransformer can be taken along")
    asked = between[0].get_params()
    return Reading(**(asdict(reading) | {"norm": asked["norm"], "sublinear_tf": bool(asked["sublinear_tf"])}))


def _linear(model: Any) -> tuple[_Floats, _Floats, str]:
    """Weights (C, F), bias (C,) and link of a fitted classifier."""
    kind, classes = type(model).__name__, len(model.classes_)
    if kind == "LogisticRegression":
        return model.coef_, model.intercept_, "sigmoid" if classes == 2 else "softmax"
    if kind == "SGDClassifier" and model.loss == "log_loss":
        return model.coef_, np.atleast_1d(model.intercept_), "sigmoid" if classes == 2 else "each"
    if kind in _NAIVE and classes > 1:
        prior = model.class_log_prior_ if kind == "MultinomialNB" else np.zeros(classes)
        return model.feature_log_prob_, prior, "softmax"
    raise ConfigError(
        f"the classifier is a {kind} of {classes} classes; use LogisticRegression, SGDClassifier(loss='log_loss'), "
        f"{' or '.join(_NAIVE)}: they have honest probabilities of their own"
    )
