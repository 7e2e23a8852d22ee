"""Damaged releases that were put aside: evidence for a while, then only bytes.

Whoever meets a damaged release moves it to ``quarantine`` among the releases (:mod:`failsoft.artifacts.store`), where
nobody looks for one to serve. The newest stay, up to an age and a size. One whose name the plan uses or somebody pinned
stays too while no whole release has that name: parts of it may be all that is left.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from failsoft.artifacts.asides import left
from failsoft.artifacts.store import QUARANTINE
from failsoft.errors import ConfigError
from failsoft.release.leftovers import Leftover

_DAY_S = 86_400.0
_ENDING = re.compile(r"-[0-9a-f]{8}$")


@dataclass(frozen=True, kw_only=True)
class SetAsidePolicy:
    """What stays of damaged releases."""

    days: float = 14.0
    """So long after it was put aside."""
    gigabytes: float = 10.0
    """The newest, as far as all of them together are no larger."""

    def __post_init__(self) -> None:
        """Refuse bounds that are none."""
        for name, unit in (("days", "days"), ("gigabytes", "GB")):
            value = getattr(self, name)
            if not 0.0 <= value < math.inf:
                raise ConfigError(f"quarantine: {name} is {value}; keep 0 {unit} or more")


def set_aside(releases: Path, policy: SetAsidePolicy, *, held: Collection[str], now_s: float) -> list[Leftover]:
    """What lies in quarantine, newest first, and whether it stays.

    Args:
        releases: folder of the published releases.
        policy: what stays.
        held: names of releases that are in use or pinned.
        now_s: wall time, of the machine whose disk it is; what is dated later is new.
    """
    dated = [(path, _since_s(path)) for path in left(releases / QUARANTINE, "[!.]*")]
    found, total_bytes = [], 0
    for path, since_s in sorted(dated, key=lambda one: -one[1]):
        name, age_days = _ENDING.sub("", path.name), max(0.0, now_s - since_s) / _DAY_S
        what = f"a damaged release, put aside {age_days:.0f} days ago"
        asked_for = name in held and not (releases / name).is_dir()
        leftover = Leftover(folder=path, what=what, kept=True)
        fits = total_bytes + leftover.size_bytes <= policy.gigabytes * 1e9
        kept = asked_for or (age_days <= policy.days and fits)
        total_bytes += leftover.size_bytes if kept else 0
        found.append(Leftover(folder=path, what=what, kept=kept))
    return found


def _since_s(folder: Path) -> float:
    """When it came there: a move dates a folder's entry anew, but none of its files."""
    try:
        return folder.stat().st_ctime
    except OSError:  # somebody else removed it just now
        return math.inf
