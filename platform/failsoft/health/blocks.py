"""A health monitor for long windows: counts in blocks, so that 10^8 outcomes take as much memory as 10^3."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from failsoft.errors import ConfigError
from failsoft.health.monitor import HealthMonitor, Verdict


@dataclass(kw_only=True)
class BlockMonitor(HealthMonitor):
    """Judges by the same policy as any :class:`HealthMonitor`; only good and bad are told apart, many at a time.

    The window holds at least ``window_size`` of the newest outcomes, and less than a block more.
    """

    blocks: int = 1000
    """Blocks of a full window; more make its end sharper and the memory larger (two integers each)."""

    def __post_init__(self) -> None:
        """Start with an empty window."""
        if self.blocks < 1:
            raise ConfigError(f"blocks is {self.blocks}; a window has at least 1 block")
        super().__post_init__()
        self._block_size = max(1, self.policy.window_size // self.blocks)
        self._counts: deque[list[int]] = deque()
        self._total = 0

    def count(self, *, good: int = 0, bad: int = 0) -> None:
        """Count outcomes that came together; their order among themselves is lost."""
        if good < 0 or bad < 0:
            raise ConfigError(f"good is {good} and bad {bad}; outcomes are counted from 0")
        if not self._counts or sum(self._counts[-1]) >= self._block_size:
            self._counts.append([0, 0])
        newest = self._counts[-1]
        newest[0], newest[1] = newest[0] + good, newest[1] + bad
        self._total, self._bad = self._total + good + bad, self._bad + bad
        while len(self._counts) > 1 and self._total - sum(self._counts[0]) >= self.policy.window_size:
            old_good, old_bad = self._counts.popleft()
            self._total, self._bad = self._total - old_good - old_bad, self._bad - old_bad

    def clear(self) -> None:
        """Start anew."""
        super().clear()
        self._counts.clear()
        self._total = 0

    def verdict(self) -> Verdict:
        """Judge the window as it is now."""
        bad, total, warn = self._bad, self._total, self.policy.warn_bad_fraction
        warning = warn is not None and total >= self.policy.min_samples and bad / total > warn
        return Verdict(self._judge(bad, total), bad, total, 0, warning, self.policy)

    def counts(self) -> list[list[int]]:
        """The window as small JSON: ``[how many blocks alike, good, bad]``, oldest first."""
        runs: list[list[int]] = []
        for good, bad in self._counts:
            if runs and runs[-1][1:] == [good, bad]:
                runs[-1][0] += 1
            else:
                runs.append([1, good, bad])
        return runs

    def load_counts(self, runs: Iterable[Sequence[int]]) -> None:
        """Take the window of :meth:`counts` on."""
        self.clear()
        for alike, good, bad in runs:
            for _ in range(alike):
                self._counts.append([good, bad])
                self._total, self._bad = self._total + good + bad, self._bad + bad
