"""Makes a batch of what could be had: as many rows as were asked for, and a weight for each.

A place whose sample is bad is filled with a copy of a good sample of the same batch (the first bad place gets the first
good one, and so on: a pure function of the batch) at weight 0. So shapes and steps stay equal on all ranks, and no
sample counts twice.
"""

from __future__ import annotations

import io
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
from torch import Tensor

from failsoft.training.loading.checks import Judgement, difference, form_of, leaves, not_finite, surely_all
from failsoft.training.loading.sample import BadKind, Gathered
from failsoft.training.loading.wording import in_words

Collate = Callable[[list[Any]], Any]
_USUAL: frozenset[type] = frozenset({dict, list, tuple, Tensor})
_PLAIN = (int, float, str, bytes, np.generic, type(None))


class Fill(StrEnum):
    """What becomes of the place of a sample that could not be had."""

    COPY = "copy"
    """A row of weight 0: all batches have the same shape. Exact for every model whose rows do not see each other."""
    LEAVE_OUT = "leave out"
    """No row: exact for batch norm, too, but shapes differ from step to step (compiled models compile anew)."""


def fitting(gathered: Gathered, collate: Collate, *, finite: bool) -> Any:
    """The collated good and synthetic samples, by their places; None when none fits.

    Those that do not fit move to ``gathered.bad``. The batch is looked at as a whole, and sample by sample only when
    something is wrong with it.
    """
    finite = finite and not gathered.all_finite
    while rows := gathered.rows():
        data, refused = _collated([sample for _, sample in rows], collate)
        if refused is not None:
            culprits = _unlike(rows) or _alone(rows, collate) or dict.fromkeys((place for place, _ in rows), refused)
        else:
            if not (finite and not_finite(data)) and travels(data):
                return data
            culprits = _ill(rows, finite=finite) or _unlike(rows)
        if not culprits:  # every sample is well alone, and their batch is not
            culprits = {place: (BadKind.MALFORMED, "its batch is not finite or can't be pickled") for place, _ in rows}
        gathered.move(culprits)
    return None


def fill_rows(
    places: Sequence[int], counted: Sequence[bool], asked: int, fill: Fill
) -> tuple[list[int], tuple[float, ...]]:
    """Which collated row goes where, and what each counts.

    Args:
        places: the place in the ask of each collated row.
        counted: whether that row is a real sample.
        asked: places in all.
        fill: what becomes of places without a row.

    Returns:
        For each row of the final batch the collated row that it is made from, and its weight.
    """
    row_of = {place: row for row, place in enumerate(places)}
    real = [row for row, counts in enumerate(counted) if counts] or list(range(len(places)))
    chosen: list[int] = []
    weights: list[float] = []
    copies = 0
    for place in range(asked):
        row = row_of.get(place)
        if row is not None and (counted[row] or fill is Fill.COPY):
            chosen.append(row)
            weights.append(1.0 if counted[row] else 0.0)
        elif fill is Fill.COPY:
            chosen.append(real[copies % len(real)])
            weights.append(0.0)
            copies += 1
    if not chosen:
        chosen, weights = [real[0]], [0.0]  # no rank may stay away from the backward pass
    return chosen, tuple(weights)


def travels(data: object) -> bool:
    """Whether it survives the way to another process; pickled on trial only where its types do not tell."""
    if type(data) in _USUAL and (surely_all(data, _is_plain) or all(_is_plain(leaf) for _, leaf in leaves(data))):
        return True
    try:
        ForkingPickler(io.BytesIO()).dump(data)
        _arrive(data)
    except Exception:  # noqa: BLE001 -- pickling runs foreign code; whatever it raises, the answer is no
        return False
    return True


def _is_plain(leaf: object) -> bool:
    if isinstance(leaf, Tensor):  # with a graph, or elsewhere than in memory, it may be refused on its way
        return not (leaf.requires_grad or leaf.is_mkldnn) and leaf.device.type == "cpu"
    return isinstance(leaf, _PLAIN) or (isinstance(leaf, np.ndarray) and leaf.dtype.kind != "O")


class _Sent(pickle.Pickler):
    """Sets tensors and arrays aside: they travel well, and by other ways."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.aside: list[Any] = []

    def persistent_id(self, thing: Any) -> int | None:
        """The place of what is set aside."""
        if not isinstance(thing, Tensor | np.ndarray):
            return None
        self.aside.append(thing)
        return len(self.aside) - 1


class _Received(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, aside: list[Any]) -> None:
        super().__init__(file)
        self._aside = aside

    def persistent_load(self, pid: Any) -> Any:
        return self._aside[pid]


def _arrive(data: object) -> None:
    """Makes it again of its bytes: an error at that would otherwise be the training's, far from its sample."""
    file = io.BytesIO()
    sent = _Sent(file)
    try:
        sent.dump(data)
    except Exception:  # noqa: BLE001 -- only multiprocessing's own way of pickling takes it, and that did
        return
    file.seek(0)
    _Received(file, sent.aside).load()


def _unlike(rows: list[tuple[int, Any]]) -> dict[int, Judgement]:
    """Samples of another form than most of their batch."""
    forms = {place: form_of(sample) for place, sample in rows}
    usual, times = Counter(forms.values()).most_common(1)[0]
    if times * 2 <= len(rows):
        return {}
    return {
        place: (BadKind.MALFORMED, f"unlike its batch: {difference(form, usual)}")
        for place, form in forms.items()
        if form != usual
    }


def _alone(rows: list[tuple[int, Any]], collate: Collate) -> dict[int, Judgement]:
    said = {place: _collated([sample], collate)[1] for place, sample in rows}
    return {place: refused for place, refused in said.items() if refused is not None}


def _collated(samples: list[Any], collate: Collate) -> tuple[Any, Judgement | None]:
    """The batch, or what is wrong with its samples."""
    try:
        return collate(samples), None
    except Exception as error:  # noqa: BLE001 -- the boundary to the user's collate: its error is the samples'
        return None, (BadKind.MALFORMED, f"can't be made into a batch: {in_words(error)}"[:500])


def _ill(rows: list[tuple[int, Any]], *, finite: bool) -> dict[int, Judgement]:
    found: dict[int, Judgement] = {}
    for place, sample in rows:
        where = not_finite(sample) if finite else None
        if where is not None:
            found[place] = (BadKind.NOT_FINITE, where)
        elif not travels(sample):
            found[place] = (BadKind.MALFORMED, "it can't be pickled, so it can't leave the worker")
    return found
