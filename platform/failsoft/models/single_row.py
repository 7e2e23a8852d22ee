"""One row through LightGBM by its fast C path: its parameters are read once instead of for every row.

``Booster.predict`` takes 20 µs for one row where this takes 7.5, most of it before a tree is reached. LightGBM's Python
package does not offer this call (microsoft/LightGBM#6913), its C library does.
"""

# F features, C classes

from __future__ import annotations

import ctypes
import threading
import weakref

import lightgbm
import numpy as np
from lightgbm import basic
from numpy.typing import NDArray

from failsoft.errors import CorpusError

_FLOAT32, _PREDICT_NORMAL, _ALL_ROUNDS = 0, 0, -1
"""``C_API_DTYPE_FLOAT32``, ``C_API_PREDICT_NORMAL`` and "every round" in LightGBM's ``c_api.h``."""
_ONE_THREAD = b"num_threads=1"
"""More do nothing for one row, and cost the tail: its p99 was 2 to 40 times as long beside busy neighbours."""


class SingleRow:
    """The fast path of one booster: one row at a time, on the caller's thread alone.

    Args:
        booster: the trees; kept, since the C side points into them.
        classes: how many numbers it answers.

    Raises:
        CorpusError: LightGBM's library refuses, or is without this call.
    """

    def __init__(self, booster: lightgbm.Booster, *, classes: int) -> None:
        self._booster = booster
        self._row_F = np.zeros(booster.num_feature(), dtype=np.float32)
        self._answer_C = np.zeros(classes, dtype=np.float64)
        self._turn = threading.Lock()
        self._handle = ctypes.c_void_p()
        self._written = ctypes.c_int64()
        self._call = _symbol("LGBM_BoosterPredictForMatSingleRowFast")
        self._arguments = (
            self._handle,
            self._row_F.ctypes.data_as(ctypes.c_void_p),
            ctypes.byref(self._written),
            self._answer_C.ctypes.data_as(ctypes.POINTER(ctypes.c_double)),
        )
        self._open()

    def predict(self, features_F: NDArray[np.floating]) -> NDArray[np.float64]:
        """Probabilities (C,) for one row of as many features as the trees read.

        Raises:
            CorpusError: the shape is wrong, or a feature is not finite: the trees would read NaN as 0, in silence.
        """
        if features_F.shape != self._row_F.shape:
            raise CorpusError(f"the row has shape {features_F.shape}; the trees read {self._row_F.shape}")
        with self._turn:
            self._row_F[:] = features_F
            if not np.isfinite(self._row_F).all():
                raise CorpusError("a feature of the row is not finite; the trees would answer as if it were 0")
            _check(self._call(*self._arguments))
            if self._written.value != len(self._answer_C):
                raise CorpusError(f"the trees answered {self._written.value} numbers, not {len(self._answer_C)}")
            return self._answer_C.copy()

    def _open(self) -> None:
        start = _symbol("LGBM_BoosterPredictForMatSingleRowFastInit")
        columns, parameters = ctypes.c_int32(len(self._row_F)), ctypes.c_char_p(_ONE_THREAD)
        rounds = (ctypes.c_int(_PREDICT_NORMAL), ctypes.c_int(0), ctypes.c_int(_ALL_ROUNDS))
        handle = ctypes.byref(self._handle)
        _check(start(self._booster._handle, *rounds, ctypes.c_int(_FLOAT32), columns, parameters, handle))
        weakref.finalize(self, _symbol("LGBM_FastConfigFree"), self._handle)


def _symbol(name: str) -> ctypes._NamedFuncPointer:
    try:
        function: ctypes._NamedFuncPointer = getattr(basic._LIB, name)  # type: ignore[attr-defined]  # the library itself, loaded
    except AttributeError as error:
        raise CorpusError(f"LightGBM {lightgbm.__version__} has no {name}; use 4.5 or newer") from error
    return function


def _check(status: int) -> None:
    if status != 0:
        words = _symbol("LGBM_GetLastError")
        words.restype = ctypes.c_char_p
        raise CorpusError(f"LightGBM refused one row: {words().decode('utf-8', 'replace')}")
