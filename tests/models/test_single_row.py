"""One row by LightGBM's fast path: the same answer, and no guess about what is not a number."""

from __future__ import annotations

import gc
import threading

import lightgbm
import numpy as np
import pytest
from numpy.typing import NDArray

from failsoft.errors import CorpusError
from failsoft.models.single_row import SingleRow

FEATURES, CLASSES = 12, 3


def trained() -> lightgbm.Booster:
    rng = np.random.default_rng(0)
    rows_NF, labels_N = rng.normal(size=(200, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, 200)
    settings = {"objective": "multiclass", "num_class": CLASSES, "num_leaves": 5, "verbosity": -1, "num_threads": 1}
    return lightgbm.train(settings, lightgbm.Dataset(rows_NF, labels_N), 8)


BOOSTER = trained()
ROWS_NF = np.random.default_rng(1).normal(size=(20, FEATURES)).astype(np.float32)


def test_the_fast_path_answers_what_the_slow_one_does() -> None:
    fast = SingleRow(BOOSTER, classes=CLASSES)
    slow_NC = BOOSTER.predict(ROWS_NF, num_threads=1)
    assert np.array_equal(np.stack([fast.predict(row_F) for row_F in ROWS_NF]), slow_NC)


def test_an_answer_stays_as_it_is_when_the_next_row_is_read() -> None:
    fast = SingleRow(BOOSTER, classes=CLASSES)
    first_C = fast.predict(ROWS_NF[0])
    before_C = first_C.copy()
    fast.predict(ROWS_NF[1])
    assert np.array_equal(first_C, before_C)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_refused_instead_of_read_as_zeros(odd: float) -> None:
    """L1: an all-NaN row gives what an all-zero row gives."""
    row_F = ROWS_NF[0].copy()
    row_F[3] = odd
    with pytest.raises(CorpusError, match="not finite"):
        SingleRow(BOOSTER, classes=CLASSES).predict(row_F)


def test_large_but_finite_numbers_are_no_reason_to_refuse() -> None:
    row_F = np.full(FEATURES, 3e38, dtype=np.float32)  # their sum is infinite
    assert SingleRow(BOOSTER, classes=CLASSES).predict(row_F).shape == (CLASSES,)


@pytest.mark.parametrize("shape", [(FEATURES + 1,), (0,), (1, FEATURES)])
def test_a_row_of_another_size_never_reaches_the_c_library(shape: tuple[int, ...]) -> None:
    with pytest.raises(CorpusError, match="the trees read"):
        SingleRow(BOOSTER, classes=CLASSES).predict(np.zeros(shape, dtype=np.float32))


def test_two_threads_never_get_each_others_answers() -> None:
    fast, wrong = SingleRow(BOOSTER, classes=CLASSES), list[int]()
    expected_NC = np.stack([fast.predict(row_F) for row_F in ROWS_NF])

    def read(row: int, expected_C: NDArray[np.float64]) -> None:
        wrong.extend(row for _ in range(300) if not np.array_equal(fast.predict(ROWS_NF[row]), expected_C))

    threads = [threading.Thread(target=read, args=(row, expected_NC[row])) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_trees_live_as_long_as_their_fast_path() -> None:
    fast = SingleRow(trained(), classes=CLASSES)
    gc.collect()
    assert fast.predict(ROWS_NF[0]).sum() == pytest.approx(1.0)


def test_more_threads_are_never_asked_for() -> None:
    """L4: threads do nothing for one row, and cost the tail."""
    fast, before = SingleRow(BOOSTER, classes=CLASSES), threads_of_this_process()
    for row_F in ROWS_NF:
        fast.predict(row_F)
    assert threads_of_this_process() == before


def threads_of_this_process() -> int:
    """As the kernel counts them: OpenMP's own do not show up in Python."""
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))
