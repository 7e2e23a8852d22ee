"""Samples that a run lost or counted twice, where it keeps a record of what it consumed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from failsoft.errors import ArtifactError
from failsoft.training.accounting.consumed import CONSUMED_FOLDER
from failsoft.training.accounting.exactness import Fate, verify


@dataclass(frozen=True, kw_only=True)
class Exactness:
    """Over all runs in a folder."""

    runs: int = 0
    """That keep a record."""
    lost: int = 0
    """Samples that were due and never seen."""
    repeated: int = 0
    """Samples that are in the weights twice."""
    unreadable: str = ""
    """Why a record could not be read; "" where none was."""


def exactness_of(run: Path) -> Exactness:
    """As ``failsoft verify`` judges each run in the folder."""
    runs = lost = repeated = 0
    unreadable = ""
    for folder in sorted(path.parent for path in run.rglob(CONSUMED_FOLDER) if path.is_dir()):
        try:
            found = verify(folder)
        except ArtifactError as error:
            unreadable = str(error)
            continue
        runs += 1
        judged = [epoch for epoch in found.epochs if epoch.judged]
        lost += sum(epoch.counts[Fate.NEVER] for epoch in judged)
        repeated += sum(epoch.counts[Fate.TWICE] for epoch in judged)
    return Exactness(runs=runs, lost=lost, repeated=repeated, unreadable=unreadable)
