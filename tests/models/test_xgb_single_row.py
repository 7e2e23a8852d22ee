"""One row by XGBoost's C call: the same answer as by its Python package, and no guess about what is not a number."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from failsoft.errors import CorpusError
from failsoft.models.xgb_single_row import XgbSingleRow

xgboost = pytest.importorskip("xgboost", reason="needs the extra: pip install 'failsoft[xgboost]'")
FEATURES, ROUNDS = 12, 6
ROWS_NF = np.random.default_rng(1).normal(size=(20, FEATURES)).astype(np.float32)


def trained(objective: str, classes: int) -> Any:
    rng = np.random.default_rng(0)
    rows_NF, labels_N = rng.normal(size=(200, FEATURES)).astype(np.float32), rng.integers(0, max(2, classes), 200)
    settings = {"objective": objective, "nthread": 1, "max_depth": 3, "verbosity": 0}
    settings |= {"num_class": classes} if classes > 2 else {}
    return xgboost.train(settings, xgboost.DMatrix(rows_NF, labels_N), ROUNDS)


@pytest.mark.parametrize("rounds", [(0, 0), (0, 2)])
@pytest.mark.parametrize(
    ("objective", "classes"),
    [("multi:softprob", 3), ("multi:softmax", 3), ("binary:logistic", 1), ("reg:squarederror", 1)],
)
def test_it_answers_what_the_package_does(objective: str, classes: int, rounds: tuple[int, int]) -> None:
    booster = trained(objective, classes)
    row_by_row = [XgbSingleRow(booster, rounds=rounds).predict(row_F) for row_F in ROWS_NF]
    whole = booster.inplace_predict(ROWS_NF, iteration_range=rounds)
    assert np.array_equal(np.stack(row_by_row), np.asarray(whole, dtype=np.float64).reshape(len(ROWS_NF), -1))


def test_an_answer_stays_as_it_is_when_the_next_row_is_read() -> None:
    one = XgbSingleRow(trained("multi:softprob", 3))
    first_C = one.predict(ROWS_NF[0])
    before = first_C.tolist()
    assert one.predict(ROWS_NF[1]).tolist() != before
    assert first_C.tolist() == before


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_refused_instead_of_read_as_absent(odd: float) -> None:
    row_F = ROWS_NF[0].copy()
    row_F[3] = odd
    with pytest.raises(CorpusError, match="not finite"):
        XgbSingleRow(trained("multi:softprob", 3)).predict(row_F)


@pytest.mark.parametrize("shape", [(FEATURES + 1,), (0,), (1, FEATURES)])
def test_a_row_of_another_size_never_reaches_the_c_library(shape: tuple[int, ...]) -> None:
    with pytest.raises(CorpusError, match="the trees read"):
        XgbSingleRow(trained("multi:softprob", 3)).predict(np.zeros(shape, dtype=np.float32))


def test_trees_that_answer_another_number_of_classes_are_refused() -> None:
    with pytest.raises(CorpusError, match="answered 3 numbers, not 7"):
        XgbSingleRow(trained("multi:softprob", 3), classes=7).predict(ROWS_NF[0])


def test_two_threads_never_get_each_others_answers() -> None:
    one, wrong = XgbSingleRow(trained("multi:softprob", 3)), list[int]()
    expected = [one.predict(row_F).tolist() for row_F in ROWS_NF]

    def read(row: int) -> None:
        wrong.extend(row for _ in range(200) if one.predict(ROWS_NF[row]).tolist() != expected[row])

    threads = [threading.Thread(target=read, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
