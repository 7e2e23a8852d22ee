"""The incident race in simulated time: one stream of requests, each rival by itself, second by second.

A model is well until 02:15, ill until it is mended, and gives recorded answers (``race_recording.py``) all the while.
An incident is mended by a load of the weights from disk (they were spoilt in memory), or by nothing but its end
(something before the model is broken, and no reload helps).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from failsoft.health.clock import ManualClock
from tests.benchmarks.race_failsoft import Failsoft
from tests.benchmarks.race_recording import Given, Recording
from tests.benchmarks.race_rivals import By, Pybreaker, Redeploy, Rival, Window

DAY_S = 86_400.0
BEGINS_S, INCIDENT_S, ENDS_S = 2 * 3600.0, 15 * 60.0, 2 * 3600.0
"""By the clock on the wall when the race begins; from there to the incident; how long the race is."""
OURS, LABELLED = "failsoft", "failsoft, 5 % labelled later"

Maker = Callable[[ManualClock, Recording], Rival]
RIVALS: Mapping[str, Maker] = {
    OURS: Failsoft,
    LABELLED: lambda clock, recording: Failsoft(clock, recording, labelled=0.05),
    "bare, rolled back by an alert": lambda clock, _: Redeploy(clock=clock),
    "bare, rolled back by a person": lambda clock, _: Redeploy(clock=clock, human_s=600.0),
    "sliding window": lambda clock, _: Window(clock),
    "sliding window and cut-off": lambda clock, _: Window(clock, cutoff=True),
    "pybreaker": lambda clock, _: Pybreaker(clock),
    "bare": lambda clock, _: Redeploy(clock=clock, limit=2.0),
}


@dataclass(frozen=True, kw_only=True)
class Illness:
    """What goes wrong."""

    kind: str
    """Whose recorded answers are given."""
    mended_by_load: bool
    ends_s: float = 45 * 60.0
    """After so long it is over in any case."""

    @property
    def words(self) -> str:
        """Its name."""
        return f"{self.kind}, {'in memory: a load mends it' if self.mended_by_load else 'no load mends it'}"


@dataclass(kw_only=True)
class Course:
    """What the callers of one rival got."""

    right: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    by_model: list[int] = field(default_factory=list)
    """Each second by second."""
    wrong_of_ill: int = 0
    """Wrong answers of the ill model that callers got."""
    first_fall_s: float | None = None
    """After the incident's first moment; None: never."""
    warned_s: float | None = None
    """When it first warned, after the incident's first moment; None: never, or it knows no warnings."""
    returns_to_ill: int = 0
    """How often callers met the ill model again after it had been left."""
    falls: int = 0
    mended_s: float | None = None
    """When the model was well again, after the incident's first moment."""
    back_s: float | None = None
    """When all callers met the model again, for the last time; after the incident's first moment."""

    def success(self, start_s: float, end_s: float) -> float:
        """Share of right answers in a span of seconds."""
        span = slice(int(start_s), int(end_s))
        return sum(self.right[span]) / max(1, sum(self.asked[span]))


class _Model:
    """Gives recorded answers, well or ill."""

    def __init__(self, recording: Recording, illness: Illness, clock: ManualClock) -> None:
        self._recording, self._illness, self._clock = recording, illness, clock
        self._loads_before: int | None = None
        self.mended_s: float | None = None

    def is_ill(self, loads: int) -> bool:
        """Whether it is now, with so many loads of its weights by now."""
        since_s = self._clock.monotonic_s() - INCIDENT_S
        if since_s < 0.0 or self.mended_s is not None:
            return False
        if self._loads_before is None:
            self._loads_before = loads
        over = since_s >= self._illness.ends_s
        if over or (self._illness.mended_by_load and loads > self._loads_before):
            self.mended_s = since_s
        return self.mended_s is None

    def answer(self, index: int, *, ill: bool) -> Given:
        """To one of the recorded texts."""
        return (self._recording.ill[self._illness.kind] if ill else self._recording.healthy)[index]


def race(name: str, recording: Recording, illness: Illness, *, rate_hz: float, seed: int = 11) -> Course:
    """One rival through one incident; the same seed gives all rivals the same requests."""
    clock, course, chance = ManualClock(), Course(), random.Random(seed)
    rival, model = RIVALS[name](clock, recording), _Model(recording, illness, clock)
    texts, left, began_s = range(len(recording.healthy)), False, clock.monotonic_s()
    assert began_s == 0.0, "seconds are counted from the clock's first"
    for second in range(int(ENDS_S)):
        right = by_model = 0
        for _ in range(int(rate_hz)):
            clock.advance(1.0 / rate_hz)
            index, ill = chance.choice(texts), model.is_ill(rival.loads)
            given = model.answer(index, ill=ill)
            by = rival.ask(f"{second}/{index}/{chance.random():.6f}", lambda given=given: given)  # type: ignore[misc]
            rival.pass_time()
            met = by is By.MODEL
            right += given.right if met else recording.fallback_right[index]
            by_model += met
            course.wrong_of_ill += met and ill and not given.right
            if ill and not rival.serves_in_full:
                left = True
                course.first_fall_s = course.first_fall_s or clock.monotonic_s() - INCIDENT_S
            elif ill and left:
                course.returns_to_ill, left = course.returns_to_ill + 1, False
        course.right.append(right)
        course.asked.append(int(rate_hz))
        course.by_model.append(by_model)
        course.back_s = _back_s(course.back_s, rival, second)
    course.falls, course.mended_s = rival.falls, model.mended_s
    warned_s = rival.warned_s if isinstance(rival, Failsoft) else []
    course.warned_s = next((at_s - INCIDENT_S for at_s in warned_s if at_s >= INCIDENT_S), None)
    if course.back_s is not None and model.mended_s is not None:
        course.back_s = max(course.back_s, model.mended_s)
    return course


def _back_s(before: float | None, rival: Rival, second: int) -> float | None:
    """Since when all callers have met the model without a break; None while they do not."""
    if not rival.serves_in_full:
        return None
    return second - INCIDENT_S if before is None else before


@dataclass(frozen=True, kw_only=True)
class HealthyDay:
    """A day on which nothing is wrong."""

    falls: int
    warnings: int
    to_fallback: float
    """Share of the callers who did not get the healthy model's answer."""
    requests: int


def healthy_day(name: str, recording: Recording, *, rate_hz: float, hours: float = 24.0, seed: int = 12) -> HealthyDay:
    """False trips: recorded healthy answers, drawn with replacement, for a day."""
    clock, chance = ManualClock(), random.Random(seed)
    rival, healthy = RIVALS[name](clock, recording), recording.healthy
    requests, kept = round(hours * 3600 * rate_hz), 0
    for number in range(requests):
        clock.advance(1.0 / rate_hz)
        given = chance.choice(healthy)
        kept += rival.ask(str(number), lambda given=given: given) is By.MODEL  # type: ignore[misc]
        rival.pass_time()
    warnings = len(rival.warned_s) if isinstance(rival, Failsoft) else 0
    return HealthyDay(falls=rival.falls, warnings=warnings, to_fallback=1.0 - kept / requests, requests=requests)
