"""Where the refused samples of a stopped run came from: by source (shard, file), against all samples of the run.

A refused batch holds one bad sample, perhaps, and many good ones, so the share of a bad source among refused samples is
far below 1 and still far above its share of all. The p-value is P(at least so many refused samples come from the
source, if sources did not matter): binomial, times the number of sources (Bonferroni), since all of them are tried.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from failsoft.artifacts.store import write_durably
from failsoft.health.sequential import binomial_tail
from failsoft.training.letters.circumstances import KnowsSources
from failsoft.training.letters.letter import DeadLetter
from failsoft.training.letters.trials import FOREIGN

REPORT_JSON = "stop_report.json"
REPORT_TEXT = "stop_report.txt"
CHANCE = 0.01
"""A source whose p-value is above this may be there by chance."""
_MOST_ASKED = 1_000_000
_MOST_SHOWN = 50


@dataclass(frozen=True, kw_only=True)
class SourceShare:
    """One source among the refused samples."""

    source: str
    refused_samples: int
    refused_batches: int
    """Refused batches with at least one sample of it."""
    share_of_refused: float
    share_of_all: float
    p_value: float
    """After the correction for trying all sources; at most 1."""

    @property
    def lift(self) -> float:
        """How many times as often as among all samples; infinite for a source that is not known among them."""
        return self.share_of_refused / self.share_of_all if self.share_of_all else float("inf")

    @property
    def may_be_chance(self) -> bool:
        """Whether chance explains the share."""
        return not self.p_value <= CHANCE

    def in_words(self) -> str:
        """One line."""
        verdict = (
            "chance may explain it" if self.may_be_chance else f"chance does not explain it (p {self.p_value:.2g})"
        )
        return (
            f"{self.source}: {self.refused_samples} refused samples in {self.refused_batches} batches, "
            f"{self.share_of_refused:.1%} of the refused and {self.share_of_all:.1%} of all ({self.lift:.1f} times as "
            f"many); {verdict}"
        )


@dataclass(frozen=True, kw_only=True)
class StopReport:
    """Why a run stopped, and whose samples it refused."""

    refused_batches: int
    refused_samples: int
    sources: tuple[SourceShare, ...]
    """The least explicable first; empty when the task knows no sources."""
    repeated_samples: Mapping[int, int]
    """Samples that are in more than one refused batch, and in how many: the first suspects."""
    asked: int
    """Samples whose source was asked for, evenly over the run's; fewer than there are for more than a million."""
    diagnosis: str = ""

    def headline(self) -> str:
        """The source to look at first."""
        if not self.sources:
            return f"{self.refused_samples} samples in {self.refused_batches} batches were refused; no source is known."
        return f"First source to look at: {self.sources[0].in_words()}."

    def to_text(self) -> str:
        """For people."""
        lines = [self.diagnosis, "", f"{self.refused_samples} refused samples in {self.refused_batches} batches."]
        if self.sources:
            lines += ["", f"By source (shares of all from {self.asked:,} samples):"]
            lines += [f"  {entry.in_words()}" for entry in self.sources[:_MOST_SHOWN]]
        else:
            lines += ["", "The task names no sources: give it a method sources(indices) that returns a text for each."]
        if self.repeated_samples:
            lines += ["", "Samples in more than one refused batch (sample: batches):"]
            lines += [f"  {sample}: {count}" for sample, count in self.repeated_samples.items()]
        return "\n".join([*lines, ""])

    def to_json(self) -> str:
        """For programs; ``lift`` is null where it is infinite."""
        sources = [
            asdict(entry) | {"lift": entry.lift if entry.share_of_all else None, "may_be_chance": entry.may_be_chance}
            for entry in self.sources
        ]
        return json.dumps(asdict(self) | {"sources": sources}, indent=1)

    def write(self, folder: Path) -> None:
        """Replace both files in a run's folder, each whole.

        Raises:
            OSError: the disk refused.
        """
        write_durably(folder / REPORT_JSON, self.to_json().encode())
        write_durably(folder / REPORT_TEXT, self.to_text().encode("utf-8", "backslashreplace"))


def report_of(letters: Iterable[DeadLetter], *, task: object, num_samples: int) -> StopReport:
    """The report on the letters that stand; those of batches that were only undone say nothing against their data.

    Args:
        letters: of all ranks.
        task: asked for sources, where it knows them (:class:`failsoft.training.letters.circumstances.KnowsSources`).
        num_samples: of the corpus; indices count from 0. The task is not asked about others, which a damaged letter may
            hold: its error would take the place of the stop that is to be explained.
    """
    batches: dict[int, list[int]] = {}
    for letter in letters:
        if letter.refused:
            batches.setdefault(letter.position, []).extend(letter.sample_ids)
    times = Counter(sample for samples in batches.values() for sample in set(samples))
    repeated = {sample: count for sample, count in times.most_common(20) if count > 1}
    asked = np.unique(np.linspace(0, num_samples - 1, min(num_samples, _MOST_ASKED)).astype(np.int64))
    ours = ([sample for sample in samples if 0 <= sample < num_samples] for samples in batches.values())
    named, everything = _sources_of([samples for samples in ours if samples], asked, task)
    return StopReport(
        refused_batches=len(batches),
        refused_samples=sum(map(len, batches.values())),
        sources=source_shares(named, everything),
        repeated_samples=repeated,
        asked=len(asked),
    )


def _sources_of(
    batches: Iterable[list[int]], asked: NDArray[np.int64], task: object
) -> tuple[list[list[str]], Counter[str]]:
    """Sources of each batch, and of the samples asked about; none where the task knows none.

    Nor where it fails at the question: its error would take the place of the stop that is to be explained.
    """
    if not isinstance(task, KnowsSources):
        return [], Counter()
    try:
        named = [list(task.sources(np.asarray(samples, dtype=np.int64))) for samples in batches]
        return named, Counter(task.sources(asked))
    except (*FOREIGN, OSError):
        return [], Counter()


def source_shares(refused: Iterable[Iterable[str]], everything: Mapping[str, int]) -> tuple[SourceShare, ...]:
    """Each source among the refused, the least explicable first.

    Args:
        refused: the sources of the samples of each refused batch.
        everything: samples of each source among all.
    """
    batches = [Counter(batch) for batch in refused]
    samples: Counter[str] = sum(batches, Counter())
    total, of_all = samples.total(), sum(everything.values())
    shares = []
    for source, count in samples.items():
        share_of_all = everything.get(source, 0) / of_all if of_all else 0.0
        chance = binomial_tail(count, total, share_of_all) * len(samples)
        shares.append(
            SourceShare(
                source=source,
                refused_samples=count,
                refused_batches=sum(source in batch for batch in batches),
                share_of_refused=count / total,
                share_of_all=share_of_all,
                p_value=min(1.0, chance),
            )
        )
    return tuple(sorted(shares, key=lambda entry: (entry.p_value, -entry.lift, entry.source)))
