"""The interval between checkpoints that wastes least, by what they are seen to cost. Pure: stalls in, interval out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from failsoft.training.checkpoints.cadence import Setting, daly_s, expected_efficiency

FIRST_COST_S = 1.0
"""Assumed until the first checkpoint was handed over: the interval begins too long rather than too short."""
_RECENT = 9
_NEWS = 1.5
"""An interval that changed by less is not told anew."""


@dataclass(kw_only=True)
class BestInterval:
    """Daly's interval for the stalls of the last checkpoints; see :mod:`failsoft.training.checkpoints.cadence`."""

    node_mtbf_s: float
    """Mean time between failures of one node."""
    nodes: int
    """Nodes that must all live."""
    restart_s: float = 60.0
    _stalls_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _told_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse times that are none."""
        self.setting  # noqa: B018 -- it refuses them in words

    @property
    def cost_s(self) -> float:
        """How long one checkpoint holds the training up: the median of the last nine; not below a millisecond."""
        return max(1e-3, median(self._stalls_s)) if self._stalls_s else FIRST_COST_S

    @property
    def setting(self) -> Setting:
        """The sums' input."""
        return Setting(
            node_mtbf_s=self.node_mtbf_s, checkpoint_cost_s=self.cost_s, nodes=self.nodes, restart_s=self.restart_s
        )

    @property
    def interval_s(self) -> float:
        """Work between two checkpoints."""
        return daly_s(self.setting)

    def cost(self, stall_s: float) -> None:
        """One more checkpoint held the training up for so long."""
        self._stalls_s.append(stall_s)

    def news(self) -> str | None:
        """The interval in words when it is new or has changed by half; None when there is nothing to tell."""
        interval_s = self.interval_s
        if not self._stalls_s or 1.0 / _NEWS < interval_s / max(self._told_s, 1e-9) < _NEWS:
            return None
        self._told_s = interval_s
        setting = self.setting
        useful = expected_efficiency(setting, interval_s)
        job = f"{self.nodes} node{'s' if self.nodes > 1 else ''}"
        return (
            f"every {interval_s:.0f} s: a checkpoint holds the training up for {setting.checkpoint_cost_s:.3g} s "
            f"(median of the last {len(self._stalls_s)}), and the job of {job} "
            f"fails every {setting.mtbf_s / 3600.0:.3g} h; {useful:.2%} of the time is useful then (Daly 2006)"
        )
