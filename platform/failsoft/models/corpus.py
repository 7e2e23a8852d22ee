"""What a corpus is: utterances with an intent and character spans, in three splits, and a report of what was mended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Span(NamedTuple):
    """A slot value: ``text[start:end]``, in characters (Unicode code points) of the original text."""

    start: int
    end: int
    slot: str


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """One sample."""

    id: str
    """Stable name of corpus, file and place, such as ``snips/train_PlayMusic_full.json#17``; dead letters quote it."""
    text: str
    intent: str
    spans: tuple[Span, ...] = ()
    """Slot values in order of their place; they don't overlap."""
    source: str = ""
    """File (or generator) that the sample came from."""


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """An entry of a training file of which no utterance can be made. It keeps its place among the samples of a run."""

    id: str
    """Name, as that of an utterance."""
    source: str
    """File that it is in."""
    why: str


@dataclass(frozen=True, kw_only=True)
class CorpusReport:
    """What was repaired, removed or noticed while reading; nothing is dropped without an entry here."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """How often each kind of repair was made."""
    notes: tuple[str, ...] = ()
    """The first cases of each kind, with file and place."""

    def __str__(self) -> str:
        """A few lines for people."""
        if not self.counts:
            return "nothing to repair"
        head = ", ".join(f"{what}: {count}" for what, count in sorted(self.counts.items()))
        return "\n  ".join([head, *self.notes])

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"counts": dict(sorted(self.counts.items())), "notes": list(self.notes)}


class Repairs:
    """Counts repairs while a corpus is being read; keeps the first few cases of each kind as notes."""

    def __init__(self, *, notes_per_kind: int = 3) -> None:
        self._notes_per_kind = notes_per_kind
        self._counts: Counter[str] = Counter()
        self._noted: Counter[str] = Counter()
        self._notes: list[str] = []

    def add(self, kind: str, case: str, *, count: int = 1) -> None:
        """One more repair of this kind (or ``count`` of them), met in ``case``."""
        self._counts[kind] += count
        self._noted[kind] += 1
        if self._noted[kind] <= self._notes_per_kind:
            self._notes.append(f"{kind}: {case}")

    def report(self) -> CorpusReport:
        """What was counted so far."""
        return CorpusReport(counts=dict(self._counts), notes=tuple(self._notes))


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Three splits that share no text."""

    name: str
    train: tuple[Utterance, ...]
    validation: tuple[Utterance, ...]
    """For choices made while building: calibration, thresholds. Never reported as quality."""
    test: tuple[Utterance, ...]
    """For the reported quality only. For SNIPS these are the published validation files."""
    intents: tuple[str, ...]
    slots: tuple[str, ...]
    report: CorpusReport
    unreadable: tuple[Unreadable, ...] = ()
    """What else the training files hold; a run leaves each out with a letter, and so knows how many there are."""

    @property
    def num_samples(self) -> int:
        """Entries that an epoch of training meets, readable or not."""
        return len(self.train) + len(self.unreadable)
