"""Tells the run which sources rest: many workers see the same outage, and it is one event."""

from __future__ import annotations

from collections.abc import Iterable

from failsoft.training.degradation import Degradation, DegradationKind, Degradations
from failsoft.training.loading.sample import SourceNote


class SourceNews:
    """One rank's sources, as its workers see them. A source is back when every worker that missed it has it again."""

    def __init__(self, degradations: Degradations) -> None:
        self._degradations = degradations
        self._missing: dict[str, set[int]] = {}

    def heard(self, worker: int, notes: Iterable[SourceNote], *, position: int) -> None:
        """What a worker saw since its last batch, as told with the batch at ``position``."""
        self._degradations.at(position)
        for note in notes:
            missing = self._missing.setdefault(note.name, set())
            (missing.add if note.resting else missing.discard)(worker)
            if note.resting:
                self._degradations.began(_degradation(note))
            elif not missing:
                del self._missing[note.name]
                self._degradations.ended(DegradationKind.SOURCE, why=note.cause, name=note.name)

    def died(self, worker: int, *, position: int) -> None:
        """The worker's own view died with it; the one that takes its place sees for itself."""
        self._degradations.at(position)
        for name in [name for name, missing in self._missing.items() if missing == {worker}]:
            del self._missing[name]
            self._degradations.ended(DegradationKind.SOURCE, why="the worker that missed it died", name=name)
        for missing in self._missing.values():
            missing.discard(worker)


def _degradation(note: SourceNote) -> Degradation:
    return Degradation(
        kind=DegradationKind.SOURCE,
        name=note.name,
        cause=note.cause,
        level=f"instead: {note.instead}",
        cost="samples that no other tier holds are not trained on",
        way_back=f"tried again after {note.rest_s:g} s, then less and less often",
    )
