"""The same run under many seeds: its ETTR with an interval, what its time goes to, and what buys most.

A lever is one change to the setting. It is tried with the same seeds, so that both meet the same faults, and what it
buys is the mean of the differences, seed by seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean, stdev

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.training.checkpoints.cadence import expected_efficiency
from failsoft.training.fleet.faults import Fault
from failsoft.training.fleet.setting import FleetSetting, Part
from failsoft.training.fleet.trial import FleetTrial, Ran

PUBLISHED: Mapping[str, float] = {"Llama 3, 16,384 GPUs": 0.90, "ByteRobust, 9,600 GPUs": 0.97}
"""ETTR that others have told of; the first one is told as "higher than"."""
Change = Callable[[FleetSetting], FleetSetting]


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over seeds and its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], *, confidence: float = 0.95) -> Mean:
        """By Student's t; of a single value nothing is known beside it, so its interval has no ends.

        Raises:
            ConfigError: there is no value.
        """
        if not values:
            raise ConfigError("no seed was tried; use 1 or more")
        middle = fmean(values)
        if len(values) < 2:
            return cls(value=middle, low=-math.inf, high=math.inf)
        half = student_t(0.5 + confidence / 2.0, len(values) - 1) * stdev(values) / math.sqrt(len(values))
        return cls(value=middle, low=middle - half, high=middle + half)


def student_t(share: float, freedom: int) -> float:
    """The quantile of Student's t; Abramowitz and Stegun, 26.7.5, within 0.5 % from four degrees of freedom on."""
    z = float(NormalDist().inv_cdf(share))
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, start=1))


@dataclass(frozen=True, kw_only=True)
class Study:
    """One setting under several seeds."""

    setting: FleetSetting
    runs: tuple[Ran, ...]

    @property
    def ettr(self) -> Mean:
        """Of all runs."""
        return Mean.of([run.ettr for run in self.runs])

    def share(self, part: Part) -> float:
        """Of the wall time, the mean over the runs."""
        return fmean(run.spent_s[part] / run.wall_s for run in self.runs)

    def faults(self, kind: Fault | None = None) -> float:
        """How many struck in a run, on average; None: of all kinds."""
        return fmean(sum(run.faults.values()) if kind is None else run.faults[kind] for run in self.runs)

    @property
    def by_hand(self) -> float:
        """How often people had to come in a run, on average."""
        return fmean(run.by_hand for run in self.runs)

    @property
    def interval_s(self) -> float:
        """Work between two checkpoints on all nodes."""
        return self.setting.checkpoint_steps(self.setting.nodes) * self.setting.times.step_s

    @property
    def formula(self) -> float:
        """The useful share by Daly's formula, which knows one cost of a checkpoint and one of a restart."""
        return expected_efficiency(self.setting.cadence(self.setting.nodes), self.interval_s)


@dataclass(frozen=True, kw_only=True)
class Lever:
    """One change, and what it buys."""

    name: str
    ettr: Mean
    buys: Mean
    """ETTR with it less ETTR without, seed by seed."""


def study(setting: FleetSetting, seeds: Iterable[int]) -> Study:
    """Simulate the run once with each seed."""
    return Study(setting=setting, runs=tuple(FleetTrial(setting=setting, seed=seed).run() for seed in seeds))


def levers(base: Study, seeds: Sequence[int], changes: Mapping[str, Change] | None = None) -> list[Lever]:
    """Try each change to a study's setting with the same seeds; the one that buys most comes first."""
    found = []
    for name, change in (CHANGES if changes is None else changes).items():
        changed = study(change(base.setting), seeds)
        differences = [with_it.ettr - without.ettr for with_it, without in zip(changed.runs, base.runs, strict=True)]
        found.append(Lever(name=name, ettr=changed.ettr, buys=Mean.of(differences)))
    return sorted(found, key=lambda lever: -lever.buys.value)


def _times(setting: FleetSetting, **factors: float) -> FleetSetting:
    times = {name: getattr(setting.times, name) * factor for name, factor in factors.items()}
    return replace(setting, times=replace(setting.times, **times))


def _interval(setting: FleetSetting, factor: float) -> FleetSetting:
    return replace(setting, checkpoint_every_steps=max(1, round(setting.checkpoint_steps(setting.nodes) * factor)))


def _no_wait(setting: FleetSetting) -> FleetSetting:
    none = BackoffPolicy(first_s=0.0, cap_s=0.0, jitter_fraction=0.0)
    return replace(setting, restart=replace(setting.restart, backoff=none))


CHANGES: Mapping[str, Change] = {
    "start of workers in half the time": lambda setting: _times(setting, start_s=0.5),
    "start of workers in twice the time": lambda setting: _times(setting, start_s=2.0),
    "hangs and lost nodes noticed in a quarter of the time": lambda setting: _times(
        replace(setting, watch=replace(setting.watch, step_s=setting.watch.step_s / 4.0)), node_seen_s=0.25
    ),
    "checkpoints that hold up half as long": lambda setting: _times(setting, checkpoint_cost_s=0.5),
    "checkpoints that hold up ten times as long": lambda setting: _times(setting, checkpoint_cost_s=10.0),
    "twice the best interval": lambda setting: _interval(setting, 2.0),
    "half the best interval": lambda setting: _interval(setting, 0.5),
    "a checkpoint each 2000 steps, the default without an MTBF": lambda setting: replace(
        setting, checkpoint_every_steps=2000
    ),
    "no snapshots that outlive a worker": lambda setting: replace(setting, snapshot_every_steps=None),
    "snapshots four times as often": lambda setting: replace(
        setting, snapshot_every_steps=max(1, (setting.snapshot_every_steps or 100) // 4)
    ),
    "no immediate retry": lambda setting: replace(setting, immediate_retries=0),
    "no back-off": _no_wait,
    "a preflight that finds all": lambda setting: replace(setting, preflight_finds=1.0),
    "no preflight": lambda setting: replace(setting, preflight_finds=None),
    "half the spares": lambda setting: replace(setting, spares=setting.spares // 2),
    "no spares, goes on with fewer": lambda setting: replace(setting, spares=0, least=max(1, setting.nodes * 9 // 10)),
    "no spares, waits": lambda setting: replace(setting, spares=0),
    "half as many faults": lambda setting: replace(setting, faults=setting.faults.scaled(0.5)),
}
"""What is tried: each of the times and policies that a run can choose, and better machines beside them."""
