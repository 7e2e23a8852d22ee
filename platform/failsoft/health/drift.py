"""Whether what callers ask and what a model answers still looks like the release's validation data.

Two signals over the newest answers: the mix of labels (total variation distance) and the mean share of unknown words.
Both are looked at every so often, for ever, so the chance of a false finding is spent over all looks: the k-th may err
with probability ``alpha / (k (k + 1))``, which sums to ``alpha``. A finding is thus made of a healthy release at most
once in ``1 / alpha`` *whole lives*, as long as callers ask what the validation data asked. They never do quite: a
finding also needs a difference above a limit that matters.

Bounds: McDiarmid's for the distance (one answer of n moves it by 1/n; its mean by chance alone is at most
``sum sqrt(p (1 - p) / n) / 2``), Hoeffding's for the mean of shares.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from failsoft.errors import ConfigError

ValueT = TypeVar("ValueT")
_OTHER = "\0another label"


@dataclass(frozen=True, kw_only=True)
class DriftPolicy:
    """When a difference counts."""

    window: int = 500
    """Judge the newest so many answers; fewer give no verdict."""
    look_every: int = 50
    """Answers between two looks."""
    max_mix_distance: float = 0.25
    """Total variation distance from the release's label mix that still is none: a quarter of the answers may go to
    other labels, beyond what chance explains."""
    max_oov_rise: float = 0.15
    """So much above the release's own may the mean share of unknown words be, beyond what chance explains."""
    alpha: float = 1e-4
    """Chance that a release is ever found to drift whose callers ask what the validation data asked."""

    def __post_init__(self) -> None:
        """Refuse settings that find nothing or everything."""
        if self.window < 20 or not 1 <= self.look_every <= self.window:
            raise ConfigError(
                f"window is {self.window} and look_every {self.look_every}; use a window of 20 answers or more, and "
                "look once in it at least"
            )
        for name in ("max_mix_distance", "max_oov_rise", "alpha"):
            value = getattr(self, name)
            if not 0.0 < value < 1.0:
                raise ConfigError(f"{name} is {value}; use a fraction strictly between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What a look found."""

    measured: float
    """The distance, or the mean share."""
    limit: float
    """What it may be; NaN while nothing can be judged."""
    found: bool
    why: str
    """In words, also when all is well."""


class FairWindow(Generic[ValueT]):
    """The newest values, of which one caller brings a quarter at most where there are four or more.

    So no caller alone moves a distance or a mean by more than a quarter. Fewer callers share it evenly.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._newest: deque[tuple[int | None, ValueT]] = deque(maxlen=size)
        self._held: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._newest)

    def push(self, caller: int | None, value: ValueT) -> tuple[bool, ValueT | None]:
        """Whether the value was taken, and the one that left for it."""
        newest = self._newest
        oldest, gone = newest[0] if len(newest) == self._size else (None, None)
        if caller is not None and self._is_at_its_share(caller) and oldest != caller:
            return False, None
        if oldest is not None:
            self._held[oldest] -= 1
            if not self._held[oldest]:
                del self._held[oldest]
        newest.append((caller, value))
        if caller is not None:
            self._held[caller] += 1
        return True, gone

    def clear(self) -> None:
        """Forget all."""
        self._newest.clear()
        self._held.clear()

    def _is_at_its_share(self, caller: int) -> bool:
        held = self._held.get(caller, 0)
        known = len(self._held) + (not held)
        alone = known == 1 and sum(self._held.values()) == len(self._newest)
        return not alone and held >= self._size * max(0.25, 1 / max(2, known))


class LabelMix:
    """The labels of the newest answers against those of a release's validation data. O(1) for a record.

    A label that the release never gave there counts as another one; each moves the distance.

    Args:
        policy: when a difference counts.
        shares: the release's share of each label; they sum to 1.
        samples: how many answers those rest on; few of them widen the bound.
    """

    def __init__(self, policy: DriftPolicy, shares: Mapping[str, float], samples: int) -> None:
        self._policy, self._shares = policy, dict(shares)
        self.refusal = _mix_refusal(policy, self._shares, samples)
        """Why nothing can be judged; None when it can."""
        self._samples = samples
        self._window: FairWindow[str] = FairWindow(policy.window)
        self._counts: Counter[str] = Counter()
        self._looks = _Looks(policy)
        self.last: Looked | None = None

    def record(self, label: str, caller: int | None = None) -> None:
        """Count one answer's label."""
        label = label if label in self._shares else _OTHER
        taken, left = self._window.push(caller, label)
        if taken:
            self._counts[label] += 1
            if left is not None:
                self._counts[left] -= 1
        if self._looks.due() and len(self._window) == self._policy.window and self.refusal is None:
            self.last = self._look()

    def clear(self) -> None:
        """Start anew; looks spent stay spent."""
        self._window.clear()
        self._counts.clear()
        self.last = None

    def _look(self) -> Looked:
        size = len(self._window)
        distances = {label: self._counts[label] / size - share for label, share in self._shares.items()}
        distances[_OTHER] = self._counts[_OTHER] / size
        distance = sum(map(abs, distances.values())) / 2
        limit = self._policy.max_mix_distance + _mix_noise(
            self._policy, self._shares, self._samples, self._looks.spend()
        )
        most = max(distances, key=lambda label: abs(distances[label]))
        name = "labels that the release never gave" if most == _OTHER else repr(most)
        why = (
            f"label mix differs by {distance:.2f} from the release's (limit {limit:.2f} with chance): {name} "
            f"{100 * distances[most]:+.0f} points"
        )
        return Looked(measured=distance, limit=limit, found=distance > limit, why=why)


class OovWindow:
    """The mean share of unknown words of the newest texts against a release's. O(1) for a record.

    Args:
        policy: when a difference counts.
        healthy: the release's mean share.
    """

    def __init__(self, policy: DriftPolicy, healthy: float) -> None:
        self._policy, self._healthy = policy, healthy
        self.refusal = _oov_refusal(policy, healthy)
        """Why nothing can be judged; None when it can."""
        self._window: FairWindow[float] = FairWindow(policy.window)
        self._sum = 0.0
        self._looks = _Looks(policy)
        self.last: Looked | None = None

    def record(self, share: float, caller: int | None = None) -> None:
        """Count one text's share of unknown words; what is no share is unknown and does not count."""
        if not 0.0 <= share <= 1.0:
            return
        taken, left = self._window.push(caller, share)
        if taken:
            self._sum += share - (0.0 if left is None else left)
        if self._looks.due() and len(self._window) == self._policy.window and self.refusal is None:
            self.last = self._look()

    def clear(self) -> None:
        """Start anew; looks spent stay spent."""
        self._window.clear()
        self._sum = 0.0
        self.last = None

    def _look(self) -> Looked:
        mean = self._sum / len(self._window)
        limit = self._healthy + self._policy.max_oov_rise + _slack(self._looks.spend(), len(self._window))
        why = (
            f"{mean:.1%} of the words are unknown to the model, {self._healthy:.1%} of the release's validation texts "
            f"(limit {limit:.1%} with chance)"
        )
        return Looked(measured=mean, limit=limit, found=mean > limit, why=why)


class _Looks:
    """When to look, and the chance of error that each look may have."""

    def __init__(self, policy: DriftPolicy) -> None:
        self._policy, self._since, self._spent = policy, 0, 0

    def due(self) -> bool:
        self._since += 1
        if self._since < self._policy.look_every:
            return False
        self._since = 0
        return True

    def spend(self) -> float:
        self._spent += 1
        return self._policy.alpha / (self._spent * (self._spent + 1))


def _slack(alpha: float, samples: int) -> float:
    """Hoeffding's and McDiarmid's, for one answer of ``samples`` that moves the result by ``1 / samples``."""
    return math.sqrt(math.log(1.0 / alpha) / (2 * samples))


def _mix_noise(policy: DriftPolicy, shares: Mapping[str, float], samples: int, alpha: float) -> float:
    """What chance adds to the distance at most: that of the window, and that of the validation data behind it."""
    spread = sum(math.sqrt(share * (1.0 - share)) for share in shares.values()) / 2
    both = ((policy.window, alpha / 2), (samples, alpha / 2))
    return sum(spread / math.sqrt(count) + _slack(error, count) for count, error in both)


def _mix_refusal(policy: DriftPolicy, shares: Mapping[str, float], samples: int) -> str | None:
    if not shares or samples < 1:
        return "the release has no label mix to compare with"
    if not all(0.0 <= share <= 1.0 for share in shares.values()) or not abs(sum(shares.values()) - 1.0) < 0.01:
        return f"the release's label mix is none: its shares sum to {sum(shares.values()):.3f}; publish it again"
    limit = policy.max_mix_distance + _mix_noise(policy, shares, samples, policy.alpha / 2)
    if not limit < 1.0:
        return (
            f"with {len(shares)} labels, {samples} validation answers and a window of {policy.window} chance alone "
            f"explains a distance of {limit - policy.max_mix_distance:.2f}, so no drift could be told from it; use a "
            "larger window"
        )
    return None


def _oov_refusal(policy: DriftPolicy, healthy: float) -> str | None:
    if not 0.0 <= healthy <= 1.0:
        return f"the release's share of unknown words is {healthy}; measure it on validation data"
    limit = healthy + policy.max_oov_rise + _slack(policy.alpha / 2, policy.window)
    if not limit < 1.0:
        return (
            f"{healthy:.0%} of the words of the release's own validation texts are unknown to it, so that no rise "
            "could be told; train it on words that callers use, or use a larger window"
        )
    return None
