"""What a policy would do to a healthy model, and how soon it would notice a broken one. No model is asked.

Each gateway has a window of its own and the controller one over all of them; whichever trips first clears all. Outcomes
are drawn at a rate, or taken from a log. All windows are judged in bulk by arrays, which gives the same trips as
feeding :class:`failsoft.health.monitor.HealthMonitor` one by one (a property test holds that).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from failsoft.errors import ConfigError
from failsoft.health.monitor import HealthPolicy
from failsoft.health.sequential import binomial_tail

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
_FIRST_CHUNK, _LARGEST_CHUNK = 4096, 1 << 20
MAX_TRIPS = 10_000
"""More false trips of one course are not counted."""


def needed_bad(policy: HealthPolicy) -> Ints:
    """For each number of outcomes in the window the fewest bad ones that trip; one more than there are: none does.

    Both halves of the rule, the share and the ruled-out chance, hold for more bad outcomes once they hold for some.
    """
    return np.array([_needed(policy, total) for total in range(policy.window_size + 1)], dtype=np.int64)


def _needed(policy: HealthPolicy, total: int) -> int:
    if total < policy.min_samples:
        return total + 1
    low, high = 0, total + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _trips(policy, middle, total) else (middle + 1, high)
    return low


def _trips(policy: HealthPolicy, bad: int, total: int) -> bool:
    if bad > total:
        return True
    if bad / total < policy.max_bad_fraction:
        return False
    return binomial_tail(bad, total, policy.ruled_out_bad_fraction) <= policy.chance_alpha


class BulkWindow:
    """The window of one watcher over a whole course of outcomes.

    Args:
        policy: its rule.
        bad: the outcomes, in order; True: bad.
        needed: of :func:`needed_bad`, where it is known already.
    """

    def __init__(self, policy: HealthPolicy, bad: Bools, needed: Ints | None = None) -> None:
        self._policy = policy
        self._needed = needed_bad(policy) if needed is None else needed
        self._sums = np.zeros(len(bad) + 1, dtype=np.int32)
        np.cumsum(bad, dtype=np.int32, out=self._sums[1:])
        self._last_good: Ints | None = None
        if policy.max_consecutive_bad is not None:
            places = np.arange(len(bad), dtype=np.int64)
            self._last_good = np.maximum.accumulate(np.where(bad, -1, places)) if len(bad) else places

    def first_trip(self, start: int, stop: int, cleared_at: int) -> int | None:
        """The first place from ``start`` to before ``stop`` where it trips, after it was cleared before a place."""
        places = np.arange(start, stop, dtype=np.int64)
        begins = np.maximum(cleared_at, places + 1 - self._policy.window_size)
        totals = np.minimum(places + 1 - cleared_at, self._policy.window_size)
        tripped = self._sums[places + 1] - self._sums[begins] >= self._needed[totals]
        limit = self._policy.max_consecutive_bad
        if limit is not None and self._last_good is not None:
            tripped |= places - np.maximum(self._last_good[places], cleared_at - 1) >= limit
        found = np.flatnonzero(tripped)
        return int(places[found[0]]) if len(found) else None


class Watchers:
    """The controller's window over all calls, and one for each gateway over its own; a trip of any clears all.

    Args:
        policy: the rule for all of them.
        bad: all outcomes, in order.
        gateway_of: the number of the gateway of each call.
        needed: of :func:`needed_bad`, where it is known already.
    """

    def __init__(self, policy: HealthPolicy, bad: Bools, gateway_of: Ints, needed: Ints | None = None) -> None:
        if len(bad) != len(gateway_of):
            raise ConfigError(f"{len(bad)} outcomes and {len(gateway_of)} gateways: each outcome comes from one")
        needed = needed_bad(policy) if needed is None else needed
        self._calls = len(bad)
        everywhere = np.arange(len(bad), dtype=np.int64)
        gateways = np.unique(gateway_of)
        places = [everywhere] + [np.flatnonzero(gateway_of == one) for one in gateways if len(gateways) > 1]
        self._windows = [(own, BulkWindow(policy, bad[own], needed)) for own in places]

    def trips(self) -> Iterator[int]:
        """The calls at which one of them trips, each after all were cleared at the one before."""
        at = cleared_at = 0
        chunk = _FIRST_CHUNK
        while at < self._calls:
            stop = min(at + chunk, self._calls)
            trip = self._first(at, stop, cleared_at)
            if trip is None:
                at, chunk = stop, min(chunk * 4, _LARGEST_CHUNK)
            else:
                yield trip
                at = cleared_at = trip + 1
                chunk = _FIRST_CHUNK

    def _first(self, start: int, stop: int, cleared_at: int) -> int | None:
        trips = []
        for own, window in self._windows:
            low, high, cleared = (int(np.searchsorted(own, place)) for place in (start, stop, cleared_at))
            trip = window.first_trip(low, high, cleared)
            if trip is not None:
                trips.append(int(own[trip]))
        return min(trips, default=None)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How often something happened, as events in a day."""

    events: int
    days: float

    @property
    def per_day(self) -> float:
        """The measured rate."""
        return self.events / self.days

    def bounds(self, *, confidence: float = 0.95) -> tuple[float, float]:
        """The exact interval for the true rate: Garwood, "Fiducial limits for the Poisson distribution", 1936."""
        alpha = (1.0 - confidence) / 2
        low = _poisson_mean(self.events, alpha, upper=False) if self.events else 0.0
        return low / self.days, _poisson_mean(self.events, alpha, upper=True) / self.days


def _poisson_mean(events: int, alpha: float, *, upper: bool) -> float:
    """The mean at which so few events (``upper``), or so many, have the chance ``alpha``."""
    low, high = 0.0, events + 10.0 * math.sqrt(events + 1.0) + 20.0
    for _ in range(80):
        middle = (low + high) / 2
        below = _poisson_at_most(events if upper else events - 1, middle)
        go_up = below > alpha if upper else 1.0 - below < alpha
        low, high = (middle, high) if go_up else (low, middle)
    return low


def _poisson_at_most(events: int, mean: float) -> float:
    if mean <= 0.0:
        return 1.0
    terms = np.arange(events + 1)
    logs = np.array([math.lgamma(term + 1.0) for term in terms])
    return float(np.exp(terms * math.log(mean) - mean - logs).sum())


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Whom the policy is to watch."""

    broken_fraction: float = 0.40
    """Share of a broken model's answers that are bad."""
    calls_per_s: float = 50.0
    """Over all gateways."""
    gateways: int = 1
    report_lag_s: float = 0.1
    """So much later than the gateways the controller knows of an outcome."""
    incidents: int = 500
    """Times that the model breaks, for the time to detection."""
    give_up_calls: int = 20_000
    """An incident that is not noticed within so many calls, or four windows if that is more, counts as not noticed."""

    def __post_init__(self) -> None:
        """Refuse what can't be simulated."""
        if not 0.0 < self.broken_fraction <= 1.0:
            raise ConfigError(f"broken_fraction is {self.broken_fraction}; a broken model has above 0 and up to 1")
        if not 0.0 < self.calls_per_s < math.inf:
            raise ConfigError(f"calls_per_s is {self.calls_per_s}; use more than 0")
        for name in ("gateways", "incidents", "give_up_calls"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more")


@dataclass(frozen=True, kw_only=True)
class Detection:
    """How soon a broken model was noticed, over many incidents."""

    calls: tuple[int, ...]
    """From the first call of the broken model, over all gateways, in rising order; the noticed ones."""
    seconds: tuple[float, ...]
    """The same in time, in rising order."""
    not_noticed: int
    """Incidents that were not noticed before the scenario gave up."""

    def quantile(self, share: float) -> tuple[float, float] | None:
        """Calls and seconds within which this share of all incidents was noticed; None: not so many were."""
        rank = math.ceil(share * (len(self.calls) + self.not_noticed)) - 1
        if rank >= len(self.calls):
            return None
        return float(self.calls[max(0, rank)]), self.seconds[max(0, rank)]


def draw(healthy_fraction: float, calls: int, rng: np.random.Generator) -> Bools:
    """The outcomes of a healthy model; True: bad."""
    if not 0.0 <= healthy_fraction <= 1.0:
        raise ConfigError(f"healthy_fraction is {healthy_fraction}; a share from 0 to 1")
    return rng.random(calls) < healthy_fraction


def false_trips(policy: HealthPolicy, healthy: Bools, gateways: int, rng: np.random.Generator) -> list[int]:
    """The calls at which the policy trips though nothing is broken; the first 10,000, where there are more."""
    watchers = Watchers(policy, healthy, rng.integers(0, gateways, len(healthy)))
    return list(islice(watchers.trips(), MAX_TRIPS))


def detection(policy: HealthPolicy, healthy: Bools, scenario: Scenario, rng: np.random.Generator) -> Detection:
    """Break the model at random places of a healthy course, and see when that is noticed.

    Raises:
        ConfigError: there is no healthy course to begin with.
    """
    if not len(healthy):
        raise ConfigError("no healthy outcome is known; give a rate or a log that holds some")
    needed = needed_bad(policy)
    found = [_one_incident(policy, healthy, scenario, rng, needed) for _ in range(scenario.incidents)]
    noticed = [incident for incident in found if incident is not None]
    return Detection(
        calls=tuple(sorted(calls for calls, _ in noticed)),
        seconds=tuple(sorted(seconds for _, seconds in noticed)),
        not_noticed=len(found) - len(noticed),
    )


def _one_incident(
    policy: HealthPolicy, healthy: Bools, scenario: Scenario, rng: np.random.Generator, needed: Ints
) -> tuple[int, float] | None:
    """Calls and seconds until it is noticed; None: it is not. A false trip before it breaks clears the windows."""
    warm = 3 * policy.window_size * scenario.gateways
    before = healthy[(int(rng.integers(0, len(healthy))) + np.arange(warm)) % len(healthy)]
    give_up_calls = max(scenario.give_up_calls, 4 * policy.window_size)
    after = rng.random(give_up_calls) < scenario.broken_fraction
    gateway_of = rng.integers(0, scenario.gateways, warm + len(after))
    watchers = Watchers(policy, np.concatenate((before, after)), gateway_of, needed)
    calls = next((trip - warm + 1 for trip in watchers.trips() if trip >= warm), None)
    if calls is None:
        return None
    lag_s = scenario.report_lag_s if scenario.gateways > 1 else 0.0
    return calls, float(rng.gamma(calls, 1.0 / scenario.calls_per_s)) + lag_s
