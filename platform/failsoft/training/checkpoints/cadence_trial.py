"""A job that fails at random, simulated: what a checkpoint interval is worth, without any formula."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from failsoft.training.checkpoints.cadence import Setting, daly_s, expected_efficiency, young_s

_FACTORS = (0.25, 0.5, 2.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One interval, by formula and by simulation."""

    name: str
    interval_s: float
    expected: float
    """Useful share of the wall time by formula."""
    simulated: float
    """Useful share in the simulation."""


def simulate(setting: Setting, interval_s: float, *, rng: random.Random, failures: int = 2000) -> float:
    """Useful share (0..1) of the wall time of a long job, with exponential times between failures.

    Work that no checkpoint has kept is lost; a failure may strike in mid-work, mid-checkpoint and mid-restart.
    """
    kept_s = wall_s = 0.0
    segment_s, mtbf_s = interval_s + setting.checkpoint_cost_s, setting.mtbf_s
    restarting = False
    for _ in range(failures):
        until_failure_s = rng.expovariate(1.0 / mtbf_s)
        wall_s += until_failure_s
        at_work_s = until_failure_s - (setting.restart_s if restarting else 0.0)
        kept_s += interval_s * max(0, int(at_work_s // segment_s))
        restarting = True
    return kept_s / wall_s


def side_by_side(setting: Setting, *, seed: int = 7, failures: int = 4000) -> Sequence[Trial]:
    """Young's, Daly's and intervals around Daly's, each by formula and by simulation with the same failures."""
    best_s = daly_s(setting)
    intervals = {"Young": young_s(setting), "Daly": best_s}
    intervals |= {f"Daly × {factor:g}": factor * best_s for factor in _FACTORS}
    return [
        Trial(
            name=name,
            interval_s=interval_s,
            expected=expected_efficiency(setting, interval_s),
            simulated=simulate(setting, interval_s, rng=random.Random(seed), failures=failures),
        )
        for name, interval_s in sorted(intervals.items(), key=lambda item: item[1])
    ]
