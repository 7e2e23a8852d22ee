"""A dataset that never raises: whatever goes wrong with a sample becomes a value that says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import default_collate

from failsoft.training.loading.board import Board
from failsoft.training.loading.checks import SampleChecks
from failsoft.training.loading.collate import Collate, Fill, fill_rows, fitting
from failsoft.training.loading.gathering import Gathering, SampleSource
from failsoft.training.loading.sample import Ask, BadKind, BadSample, Gathered, GuardedBatch, SourceNote, StandIn
from failsoft.training.loading.seeding import seeded
from failsoft.training.loading.tiered_dataset import in_two_steps
from failsoft.training.loading.wording import in_words

_MAX_WHY = 500


@runtime_checkable
class NamesSources(Protocol):
    """A dataset that knows the shard or file of each sample."""

    def source_of(self, index: int) -> str:
        """Shard or file."""
        ...


@runtime_checkable
class TakesNotes(Protocol):
    """A dataset that tells when its sources rest or come back."""

    def take_notes(self) -> tuple[SourceNote, ...]:
        """Since the last asking."""
        ...


@runtime_checkable
class LearnsTogether(Protocol):
    """A dataset whose copies in several workers tell each other of sources that are ill."""

    def share(self, board: Board) -> None:
        """By this table; before it is copied."""
        ...


class Checked:
    """Loads one rank's share of a batch at a time, in whatever process it is called. Picklable if its parts are.

    Args:
        dataset: map-style; what it raises costs one sample.
        checks: what a sample must satisfy.
        collate: makes a batch of a list of samples.
        fill: what becomes of the place of a bad sample.
        reserve: samples to copy, at weight 0, when all of a share are bad; asked for by position, and only then.
        seed: the generators of torch, numpy and ``random`` are seeded from it and the batch's position, so that
            augmentations after a restart are those of the undisturbed run; None leaves them alone.
    """

    def __init__(
        self,
        dataset: SampleSource,
        *,
        checks: SampleChecks | None = None,
        collate: Collate = default_collate,
        fill: Fill = Fill.COPY,
        reserve: Callable[[int], Sequence[int]] | None = None,
        seed: int | None = None,
    ) -> None:
        self.dataset = dataset
        self.checks = checks or SampleChecks()
        self._collate = collate
        self._fill = fill
        self._reserve = reserve or _nothing
        self._seed = seed
        self._last_good: list[Any] = []
        self._began: Callable[[int], None] = _nobody
        # asked once: a protocol takes microseconds to look for
        self._reads = in_two_steps(dataset)
        self._tells = dataset if isinstance(dataset, TakesNotes) else None

    def source_of(self, index: int) -> str:
        """Shard or file of a sample; empty where the dataset does not know."""
        if not isinstance(self.dataset, NamesSources):
            return ""
        try:
            return self.dataset.source_of(index)
        except Exception:  # noqa: BLE001 -- foreign code in a loader's process; a name is not worth a batch
            return ""

    def watched_by(self, began: Callable[[int], None]) -> None:
        """Tell ``began`` the index of each sample before it is loaded: the last word of a worker that dies of it."""
        self._began = began

    def share(self, board: Board) -> None:
        """Copies of this in several workers are to learn of ill sources together, if the dataset can."""
        if isinstance(self.dataset, LearnsTogether):
            self.dataset.share(board)

    def load(self, ask: Ask) -> GuardedBatch:
        """The batch, whatever happens."""
        if self._seed is None:
            return self._whatever(ask)
        with seeded(self._seed, ask.position, ask.indices[0]):
            return self._whatever(ask)

    def _whatever(self, ask: Ask) -> GuardedBatch:
        """An error that left a worker would look like a worker that hangs, since its batch never comes."""
        try:
            return self._load(ask)
        except Exception as error:  # noqa: BLE001 -- foreign code (collate on copies, a hash, a length) in any place
            return self._lost(ask, f"its batch can't be made: {in_words(error)}")

    def _lost(self, ask: Ask, why: str) -> GuardedBatch:
        places = len(ask.indices)
        return GuardedBatch(
            position=ask.position,
            indices=ask.indices,
            rows=tuple(range(places)),
            data=None,
            weights=(0.0,) * places,
            bad=tuple(self._bad(ask, place, BadKind.MALFORMED, why) for place in range(places)),
        )

    def _load(self, ask: Ask) -> GuardedBatch:
        gathered = self._gather(ask.indices, ask)
        data = fitting(gathered, self._collate, finite=self.checks.finite)
        rows, weights = tuple(range(len(ask.indices))), (1.0,) * len(ask.indices)
        if gathered.bad or gathered.stand_ins:
            data, rows, weights = self._filled(gathered, ask)
        if gathered.good:
            self._last_good = [next(iter(gathered.good.values()))]
        return GuardedBatch(
            position=ask.position,
            indices=ask.indices,
            rows=rows,
            data=data,
            weights=weights if ask.counted else (0.0,) * len(weights),
            bad=tuple(self._bad(ask, place, *said) for place, said in sorted(gathered.bad.items())),
            synthetic=tuple(self._made_up(ask, *entry) for entry in sorted(gathered.stand_ins.items(), key=_place)),
            notes=() if self._tells is None else self._tells.take_notes(),
        )

    def _gather(self, indices: Sequence[int], ask: Ask) -> Gathered:
        return Gathering(self.dataset, self._reads, self.checks, self._began).of(indices, ask.barred)

    def _filled(self, gathered: Gathered, ask: Ask) -> tuple[Any, tuple[int, ...], tuple[float, ...]]:
        """The batch again, with something at weight 0 in each place that lacks a real sample."""
        rows = gathered.rows()
        if not rows:
            return self._borrowed(ask)
        places, counted = [place for place, _ in rows], [place in gathered.good for place, _ in rows]
        chosen, weights = fill_rows(places, counted, len(ask.indices), self._fill)
        samples = [rows[row][1] for row in chosen]
        whole = len(chosen) == len(ask.indices)
        stands_for = tuple(range(len(chosen))) if whole else tuple(places[row] for row in chosen)
        return self._collate(samples), stands_for, weights

    def _borrowed(self, ask: Ask) -> tuple[Any, tuple[int, ...], tuple[float, ...]]:
        """Nothing of the ask can be had: the rank goes through the motions with copies of another sample, weight 0."""
        places = len(ask.indices) if self._fill is Fill.COPY else 1
        reserve = self._gather(self._reserve(ask.position), ask)
        if fitting(reserve, self._collate, finite=self.checks.finite) is not None:
            self._last_good = [reserve.rows()[0][1]]
        if not self._last_good:
            return None, tuple(range(places)), (0.0,) * places
        return self._collate(self._last_good * places), tuple(range(places)), (0.0,) * places

    def _bad(self, ask: Ask, place: int, kind: BadKind, why: str) -> BadSample:
        index = ask.indices[place]
        return BadSample(index=index, source=self.source_of(index), kind=kind, why=why[:_MAX_WHY])

    def _made_up(self, ask: Ask, place: int, stand_in: StandIn) -> BadSample:
        index, why = ask.indices[place], stand_in.why[:_MAX_WHY]
        return BadSample(index=index, source=stand_in.source, kind=BadKind.OUT_OF_REACH, why=why)


def indices_of(array: NDArray[np.integer]) -> tuple[int, ...]:
    """Plain integers: numpy's own make poor keys and larger messages."""
    return tuple(array.tolist())


def _place(entry: tuple[int, StandIn]) -> int:
    return entry[0]


def _nothing(_position: int) -> tuple[int, ...]:
    """No reserve: the last good sample that this process met has to do."""
    return ()


def _nobody(_index: int) -> None:
    """Nobody watches: the samples are loaded in the training's own process."""
