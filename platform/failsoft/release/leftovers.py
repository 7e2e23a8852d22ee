"""What making releases left behind: half-written folders of killed processes, and candidates that failed their gates.

None of it is ever seen by serving. What a living process fills is not listed (:mod:`failsoft.artifacts.asides`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from failsoft.artifacts.asides import HIDDEN, left, remove_if_left
from failsoft.artifacts.bundle import Role
from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.health.json_object import json_value

PROVENANCE = "provenance.json"
"""Written last of a candidate's parts: it is whole then. One that failed and is published later knows by it where it is
from."""
_ALL = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """One folder, and what it is."""

    folder: Path
    what: str
    """In words, such as ``half a candidate: its process is gone``."""
    kept: bool
    """One of the newest candidates, for whoever wants to know why it failed."""

    @property
    def size_bytes(self) -> int:
        """Of all its files that are still there."""
        return sum(
            found.st_size for path in self.folder.rglob("*") if (found := _looked(path)) and S_ISREG(found.st_mode)
        )

    def remove(self) -> bool:
        """Remove it, unless it is kept or somebody has come to fill it; whether it went."""
        return not self.kept and remove_if_left(self.folder)


def leftovers(home: Home, *, releases: Path, keep_newest: int) -> list[Leftover]:
    """All of them; whole candidates oldest first, and behind them what is half.

    Args:
        home: whose candidates.
        releases: folder of the published releases.
        keep_newest: so many of the newest candidates stay that are whole and were not published.

    Raises:
        ConfigError: a negative number is to stay.
    """
    if keep_newest < 0:
        raise ConfigError(f"keep is {keep_newest}; keep 0 candidates or more")
    published = set(_contents(path / Role.GATE_REPORT for path in sorted(releases.glob("[!.]*"))))
    found = left(home.candidates, "c-*")
    whole = sorted((path for path in found if (path / PROVENANCE).exists()), key=_made_at)
    done = [path for path in whole if published.intersection(_contents([path / Role.GATE_REPORT]))]
    open_ = [path for path in whole if path not in done]
    old = len(open_) - keep_newest
    return [
        *(Leftover(folder=path, what="a candidate that was published", kept=False) for path in done),
        *(Leftover(folder=path, what=_said(path), kept=n >= old) for n, path in enumerate(open_)),
        *(
            Leftover(folder=path, what="half a candidate: its process is gone", kept=False)
            for path in found
            if path not in whole
        ),
        *(
            Leftover(folder=path, what="half a publication or removal: its process is gone", kept=False)
            for path in left(releases, f"{HIDDEN}*")
        ),
    ]


def clear_halves(home: Home, *, releases: Path) -> None:
    """Remove what killed processes left half done, before more is written: it may be what fills the disk."""
    for leftover in leftovers(home, releases=releases, keep_newest=_ALL):
        leftover.remove()


def _said(candidate: Path) -> str:
    judged = (candidate / Role.GATE_REPORT).exists()
    return "a candidate that failed its gates" if judged else "a candidate that was not judged to the end"


def _made_at(candidate: Path) -> float:
    """All by the one clock of the file system that holds them."""
    found = _looked(candidate / PROVENANCE)
    return found.st_mtime if found else 0.0


def _looked(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:  # somebody else removed it just now
        return None


def _contents(reports: Iterable[Path]) -> list[str]:
    found = []
    for report in reports:
        try:
            found.append(str(json_value(report.read_text("utf-8"))["facts"]["contents"]))
        except (OSError, ValueError, LookupError, TypeError):  # none, torn, or of a time that did not say
            continue
    return found
