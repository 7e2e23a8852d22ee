"""How much of a core the writer takes while the training needs them all. Pure: what was used in, how long to rest out.

A writer that runs flat out beside a training on all cores holds one of its threads up at each barrier: steps took 1.5
times as long here, on two cores, although the writer had the lowest priority. Spread over more time the same work is
hardly felt. What counts is time on a core, not time that passes: a slow disk is not made slower still.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SHARE = 0.04
"""Of one core: steps on all cores took 1.12 times as long at 0.1. A write then takes some 25 times as long as it could,
about 9 s for 353 MB and a quarter of an hour for 42 GB, unless somebody waits for it."""
_LONGEST_REST_S = 1.0


@dataclass(kw_only=True)
class Pace:
    """The rests of one write."""

    share: float = SHARE
    hurried: bool = field(default=False)
    """Somebody waits for this write, so it takes what it can get."""
    _used_s: float = 0.0
    _owed_s: float = 0.0

    def begins(self, used_s: float, *, hurried: bool = False) -> None:
        """A write begins, by a process that has used so much time on a core until now."""
        self.hurried, self._used_s, self._owed_s = hurried, used_s, 0.0

    def rest_s(self, used_s: float) -> float:
        """How long to rest now, after so much time on a core in all; 0 when hurried. A long debt is paid in pieces."""
        self._owed_s += max(0.0, used_s - self._used_s) * (1.0 / self.share - 1.0)
        self._used_s = used_s
        rest_s = min(self._owed_s, _LONGEST_REST_S)
        self._owed_s -= rest_s
        return 0.0 if self.hurried else rest_s
