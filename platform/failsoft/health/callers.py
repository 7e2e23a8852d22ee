"""A health window for many callers: one caller's bad wave is that caller's, as long as the others fare well.

When the shared window turns bad, it is judged once more without the caller who brought most of what is bad:

* the others are ill as well: it is the model, and the verdict stands, at the very same answer;
* the others are plainly healthy: the caller is *set apart*. What it brings counts in a window of its own from then on,
  until that is healthy again;
* the others are between the two, or the first window is not full yet: the verdict waits for more of them, for as many
  calls as a window holds;
* the others have fewer than ``min_samples`` of the last ``memory`` calls: the caller is the traffic, and the verdict
  stands.

So a model that is broken for all is noticed once the others' answers show it. Of simulated ones (2 % bad before, 30 to
100 % after, nine others) the mean number of calls grows by less than a tenth where the worst caller has half of the
traffic, by half where it has three quarters, and to the four- to sixfold where it has nine tenths; the others then need
as many answers *of their own* as a window without it would, 6 bad ones for a total loss.

It takes a key that a caller can't make up anew for each request: many callers who are bad together are not set apart.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

from failsoft.errors import ConfigError
from failsoft.health.monitor import BAD, SILENT, HealthMonitor, HealthPolicy, Status, Verdict
from failsoft.health.sequential import binomial_tail
from failsoft.health.window import Outcome

_PROBE_EVERY = 10


def caller_of(key: str) -> int:
    """The number of a caller, the same in every process. Keys may name people: neither reports nor logs hold them."""
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def caller_in_words(caller: int) -> str:
    """A caller's number, short enough to be read."""
    return f"{caller:016x}"[:8]


@dataclass(frozen=True, kw_only=True)
class CallerPolicy:
    """How callers are told from each other."""

    memory: int = 1000
    """Calls that are remembered with their caller. It bounds the memory, and is where the others are looked for."""
    max_apart: int = 3
    """So many callers may be apart at once, and never more than remain; bad answers to more are held against the model.
    0: nobody is set apart."""

    def __post_init__(self) -> None:
        """Refuse what can't hold a window."""
        if self.memory < 1:
            raise ConfigError(f"memory is {self.memory}; remember at least as many calls as the window holds")
        if self.max_apart < 0:
            raise ConfigError(f"max_apart is {self.max_apart}; use 0 to judge all callers together, or more")


@dataclass(kw_only=True)
class Apart:
    """A caller who is judged alone."""

    monitor: HealthMonitor
    last_call: int
    """The number of its latest call."""
    asked: int = 0
    """Requests of it since it was set apart."""


class CallerWindows:
    """One window for all callers, and one for each who is set apart. O(1) work for a record, bounded memory.

    Without callers (``caller`` is None), and with a single one, it is a plain :class:`HealthMonitor`.

    Args:
        policy: the rule for every window.
        callers: how many are told apart.
        counts_as_bad: see :class:`HealthMonitor`.
    """

    def __init__(
        self, policy: HealthPolicy, callers: CallerPolicy | None = None, *, counts_as_bad: frozenset[Outcome] = BAD
    ) -> None:
        self.policy = policy
        self._callers = callers or CallerPolicy()
        self._counts_as_bad = counts_as_bad
        self._shared = self._window(())
        self._apart: dict[int, Apart] = {}
        self._recent: deque[tuple[int | None, Outcome]] = deque(
            maxlen=max(self._callers.memory, policy.window_size) if self._callers.max_apart else 0
        )
        self._calls = 0
        self._undecided_since: int | None = None
        self.newly_apart: list[int] = []
        """Callers set apart since somebody last emptied this list; at most the newest 64."""

    def record(self, outcome: Outcome, caller: int | None = None) -> None:
        """Count one outcome of a caller; None: nobody knows whose."""
        self._calls += 1
        if self._apart and caller is not None and caller in self._apart:
            self._record_apart(outcome, caller)
        else:
            self._shared.record(outcome)
            if caller is not None or self._recent:
                self._remember(outcome, caller)

    def verdict(self) -> Verdict:
        """Judge what all callers but those apart have met; this is where one may be set apart."""
        verdict = self._shared.verdict()
        if verdict.status is not Status.DEGRADED or not self._recent:
            self._undecided_since = None
            return verdict
        return self._without_the_worst(verdict)

    def apart(self) -> dict[int, Verdict]:
        """Callers who are judged alone, and how they fare."""
        return {caller: held.monitor.verdict() for caller, held in self._apart.items()}

    def holds_back(self, caller: int | None) -> bool:
        """Whether this request of a caller who is apart had better not go to the model; each tenth one may, as a probe.

        Count each request once. A caller who stays away from the model altogether could never show that it is well.
        """
        held = self._apart.get(caller) if self._apart and caller is not None else None
        if held is None:
            return False
        held.asked += 1
        return held.asked % _PROBE_EVERY != 0

    def kinds(self) -> dict[Outcome, int]:
        """What the shared window holds."""
        return self._shared.kinds()

    def clear(self) -> None:
        """Start anew."""
        self._shared.clear()
        self._apart.clear()
        self._recent.clear()
        self._undecided_since = None
        self.newly_apart.clear()

    def _remember(self, outcome: Outcome, caller: int | None) -> None:
        if outcome not in SILENT:
            self._recent.append((caller, outcome))

    def _record_apart(self, outcome: Outcome, caller: int) -> None:
        """A caller whose window is full and has half of what is bad, or less, comes back to the others."""
        held = self._apart[caller]
        held.last_call = self._calls
        held.monitor.record(outcome)
        verdict = held.monitor.verdict()
        full = verdict.total >= self.policy.window_size
        if full and not verdict.bad / verdict.total > self.policy.max_bad_fraction / 2:
            del self._apart[caller]

    def _without_the_worst(self, verdict: Verdict) -> Verdict:
        newest = [entry for _, entry in zip(range(verdict.total), reversed(self._recent), strict=False)]
        worst = self._worst_of(newest)
        if worst is None:
            return verdict
        others = self._others(worst, newest)
        bad, total = sum(self._is_bad(outcome) for _, outcome in others), len(others)
        if not total or self._ill(bad, total) or not self._room_for(worst, others):
            return verdict
        too_few = total < self.policy.min_samples
        if too_few and len(self._recent) >= self.policy.window_size:
            return verdict
        if too_few or (bad / total > self.policy.max_bad_fraction / 2 and self._may_wait()):
            return verdict._replace(status=Status.HEALTHY, undecided=True)
        self._set_apart(worst, newest, others)
        return self._shared.verdict()

    def _may_wait(self) -> bool:
        """For a window's length; others who are neither ill nor plainly healthy for longer are as they always are."""
        if self._undecided_since is None:
            self._undecided_since = self._calls
        return self._calls - self._undecided_since < self.policy.window_size

    def _worst_of(self, newest: Iterable[tuple[int | None, Outcome]]) -> int | None:
        """The caller with most bad outcomes; None when none is known by a key."""
        bad = Counter(caller for caller, outcome in newest if outcome is not Outcome.GOOD and self._is_bad(outcome))
        bad.pop(None, None)
        return max(bad, key=lambda caller: bad[caller], default=None)

    def _others(self, worst: int, newest: list[tuple[int | None, Outcome]]) -> list[tuple[int | None, Outcome]]:
        """What the others met in the window; where that is too little for a verdict, also some of what came before."""
        others = [entry for entry in newest if entry[0] != worst]
        if len(others) < self.policy.min_samples:
            before = islice(reversed(self._recent), len(newest), None)
            missing = self.policy.min_samples - len(others)
            others += islice((entry for entry in before if entry[0] != worst), missing)
        return others

    def _room_for(self, worst: int, others: list[tuple[int | None, Outcome]]) -> bool:
        """Whether one more may be apart. One who has long been silent makes room."""
        limit = min(self._callers.max_apart, len({caller for caller, _ in others}))
        silent = [one for one, held in self._apart.items() if self._calls - held.last_call > self._callers.memory]
        for one in silent[: max(0, len(self._apart) + 1 - limit)]:
            del self._apart[one]
        return worst not in self._apart and len(self._apart) < limit

    def _ill(self, bad: int, total: int) -> bool:
        """Three quarters of the limit will do: without the worst caller the others look better than they are."""
        if not bad / total >= 0.75 * self.policy.max_bad_fraction:
            return False
        return binomial_tail(bad, total, self.policy.ruled_out_bad_fraction) <= self.policy.chance_alpha

    def _is_bad(self, outcome: Outcome) -> bool:
        return outcome in self._counts_as_bad

    def _set_apart(
        self, worst: int, newest: list[tuple[int | None, Outcome]], others: list[tuple[int | None, Outcome]]
    ) -> None:
        own = [outcome for caller, outcome in reversed(newest) if caller == worst]
        self._apart[worst] = Apart(monitor=self._window(own), last_call=self._calls)
        self._shared = self._window(outcome for _, outcome in reversed(others))
        kept = [entry for entry in self._recent if entry[0] != worst]
        self._recent.clear()
        self._recent.extend(kept)
        self.newly_apart = [*self.newly_apart[-63:], worst]

    def _window(self, outcomes: Iterable[Outcome]) -> HealthMonitor:
        monitor = HealthMonitor(policy=self.policy, counts_as_bad=self._counts_as_bad)
        for outcome in outcomes:
            monitor.record(outcome)
        return monitor
