"""Brings the samples of one ask together: read, made and looked at, each step for all of them before the next one.

Sample by sample would be the usual way, and the nets would cost three times as much: between two samples a decoder
throws everything else out of the processor's caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from failsoft.errors import SampleError, SourceError
from failsoft.training.loading.checks import Judgement, SampleChecks, is_large, not_finite
from failsoft.training.loading.sample import BadKind, Gathered, StandIn
from failsoft.training.loading.tiered_dataset import TieredDataset
from failsoft.training.loading.tiers import Fetched
from failsoft.training.loading.wording import in_words

_OF_THE_PROCESS = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What is said to the process and not of a sample."""
_MAX_HELD_BYTES = 32 * 1024 * 1024
"""Of samples that are read and not made yet: a batch of films must not lie in memory twice."""
_TAKEN = object()
_Item = tuple[int, int, Any]
"""Place, index, and what there is of the sample by now."""


class SampleSource(Protocol):
    """A map-style dataset. One of several tiers returns a :class:`StandIn` where it had to make a sample up."""

    def __getitem__(self, index: int) -> Any:
        """The sample."""
        ...


class Gathering:
    """One ask's samples on their way.

    Args:
        dataset: whatever it raises costs one sample.
        reads: the same, where reading and making are two steps.
        checks: what a sample must satisfy.
        began: told the index before each step with a sample.
    """

    def __init__(
        self, dataset: SampleSource, reads: TieredDataset | None, checks: SampleChecks, began: Callable[[int], None]
    ) -> None:
        self._dataset = dataset
        self._reads = reads
        self._checks = checks
        self._began = began
        self._found = Gathered()

    def of(self, indices: Sequence[int], barred: Mapping[int, str]) -> Gathered:
        """All of them, the bad ones with what is wrong."""
        found, todo = self._found, list[_Item]()
        for place, index in enumerate(indices):
            if index in barred:
                found.bad[place] = (BadKind.WORKER_DIED, barred[index])
            else:
                todo.append((place, index, None))
        for read in self._read(todo):
            made = list(self._tried(self._make, read))
            for _ in self._tried(self._take, made):
                pass
        return found

    def _read(self, todo: list[_Item]) -> Iterator[list[_Item]]:
        """Samples that are read, as many at a time as may be held; as they are where reading is no step of its own."""
        if self._reads is None:
            yield todo
            return
        fetch, read, held_bytes = self._reads.read, list[_Item](), 0
        for item in self._tried(lambda _place, index, _nothing: fetch(index), todo):
            read.append(item)
            held_bytes += len(item[2].data)
            if held_bytes > _MAX_HELD_BYTES:
                yield read
                read, held_bytes = [], 0
        if read:
            yield read

    def _tried(self, step: Callable[[int, int, Any], Any], todo: Iterable[_Item]) -> Iterator[_Item]:
        """The step's results; a sample that fails at it is bad."""
        began = self._began
        for place, index, thing in todo:
            began(index)
            try:
                result = step(place, index, thing)
            except _OF_THE_PROCESS:
                raise
            except BaseException as error:  # noqa: BLE001 -- foreign code; a panic of Rust is not even an Exception
                self._found.bad[place] = _judged(error)
            else:
                yield place, index, result

    def _make(self, place: int, index: int, read: Fetched | None) -> Any:
        """The sample. A large one is looked at right away, while it lies in the processor's cache."""
        made = self._dataset[index] if read is None or self._reads is None else self._reads.made_of(index, read)
        if self._found.all_finite is None and self._checks.finite:
            self._found.all_finite = is_large(made.sample if isinstance(made, StandIn) else made)
        if not self._found.all_finite:
            return made
        self._take(place, index, made)
        return _TAKEN

    def _take(self, place: int, _index: int, made: Any) -> None:
        if made is _TAKEN:
            return
        found, made_up = self._found, isinstance(made, StandIn)
        sample = made.sample if made_up else made
        said = self._checks.judge(sample)
        if said is None and found.all_finite and (where := not_finite(sample)):
            said = (BadKind.NOT_FINITE, where)
        if said is not None:
            found.bad[place] = said
        elif made_up:
            found.stand_ins[place] = made
        else:
            found.good[place] = sample


def _judged(error: BaseException) -> Judgement:
    kind = BadKind.RAISED
    if isinstance(error, SampleError):
        kind = BadKind.CHECKSUM
    elif isinstance(error, SourceError):
        kind = BadKind.OUT_OF_REACH
    return kind, in_words(error)
