"""Which batches were refused in which pass, where a stretch is met again after going back.

A batch that was refused in two passes is passed over for good: its data is ill whatever the state, and a run that met
it for ever would never end. Kept through a way back, and part of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PASSES = 2
"""A batch that was refused so often is not met again."""
_MAX_KEPT = 4096


class PassBook:
    """Counts refusals by position; a pass meets each position at most once. The oldest are forgotten beyond 4096."""

    def __init__(self) -> None:
        self._times: dict[int, int] = {}
        self._in_burst: set[int] = set()

    def refused(self, position: int) -> None:
        """The batch was refused once more."""
        self._times[position] = self._times.pop(position, 0) + 1
        while len(self._times) > _MAX_KEPT:
            oldest = next(iter(self._times))
            del self._times[oldest]
            self._in_burst.discard(oldest)

    def burst(self, positions: Iterable[int]) -> None:
        """These refusals led to a way back, which counts for all of them."""
        self._in_burst.update(position for position in positions if position in self._times)

    def was_refused(self, position: int) -> bool:
        """Whether an earlier pass refused it."""
        return position in self._times

    def for_good(self, position: int) -> bool:
        """Whether it was refused in two passes."""
        return self._times.get(position, 0) >= PASSES

    def was_in_burst(self, position: int) -> bool:
        """Whether a way back counts for it."""
        return position in self._in_burst

    def state_dict(self) -> dict[str, Any]:
        """As small JSON."""
        return {
            "times": [[position, times] for position, times in self._times.items()],
            "burst": sorted(self._in_burst),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the book of a checkpoint on."""
        self._times = {int(position): int(times) for position, times in state_dict.get("times", ())}
        self._in_burst = {int(position) for position in state_dict.get("burst", ())}
