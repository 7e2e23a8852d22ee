"""One start of the drilled app for many faults: what it is, what it answers when healthy, and whether it is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from failsoft.drills.serving.answers import Answer, Expectation
from failsoft.drills.serving.course import Healthy, by_model
from failsoft.drills.serving.hosting import Host
from failsoft.drills.serving.parts import Parts, has_routes, is_ours, payloads_of, route_of, status_of
from failsoft.drills.serving.processes import surplus
from failsoft.drills.serving.target import ServeTarget
from failsoft.drills.serving.traffic import Asking, Traffic
from failsoft.errors import ServingError
from failsoft.health.clock import Clock

_LOOK_S = 0.1
_HEARD, _BY_MODEL = 0.6, 0.9
"""Of a healthy app: so much of what was due was asked, and so much of it was answered by the model."""
_ROUTES_WITHIN_S = 20.0
"""Serve's proxy hears of an app a moment after it runs."""


class Session:
    """The app under drill, started or found at its address.

    Args:
        target: which.
        clock: waits and times.
    """

    def __init__(self, target: ServeTarget, clock: Clock) -> None:
        self.target, self.clock = target, clock
        self.parts: Parts | None = None
        self.asking: Asking | None = None
        self.healthy: Healthy | None = None
        self.census: Counter[str] = Counter()
        """How many processes of each kind the healthy app has."""
        self.start_s = 0.0
        """How long it took to start; 0.0: it was found at its address."""
        self.ours = False
        """Whether it has failsoft's own routes."""

    def start(self, folder: Path) -> None:
        """Start it, or find it; then learn what it answers.

        Raises:
            ServingError: it does not start, or does not answer steadily.
        """
        url = self.target.address
        if url is None:
            host = Host(self.target, folder / "host.log", self.clock)
            self.parts = Parts(self.target, host, self.clock)
            began_s = self.clock.monotonic_s()
            host.start()
            self.start_s = self.clock.monotonic_s() - began_s
            url = host.url
        self._learn(url.rstrip("/"))

    def whole(self, traffic: Traffic, since_s: float) -> bool:
        """Whether requests that were sent since then go as they did before any fault, and every part is there again."""
        if self.healthy is None:
            return False
        now_s, answers = self.clock.monotonic_s(), [one for one in traffic.now() if one.sent_s >= since_s]
        whole = self.healthy.whole(answers, now_s, self.target.rate_hz, self.target.model_sources)
        return whole and not self.missing()

    def missing(self) -> tuple[str, ...]:
        """Parts that were there before any fault and are not now."""
        return surplus(self._census(), self.census)

    def too_many(self) -> tuple[str, ...]:
        """Parts that are there now and were not before any fault."""
        return surplus(self.census, self._census())

    def _census(self) -> Counter[str]:
        return Counter() if self.parts is None else self.parts.host.family.census()

    def until(self, holds: Callable[[], bool], within_s: float) -> bool:
        """Wait for something; False when it does not come in time."""
        until_s = self.clock.monotonic_s() + within_s
        while not holds():
            if self.clock.monotonic_s() > until_s:
                return False
            self.clock.sleep_s(_LOOK_S)
            if self.parts is not None:
                self.parts.host.family.look()
        return True

    def close(self) -> tuple[str, ...]:
        """End what was started; what did not end by itself."""
        left = () if self.parts is None else self.parts.host.close()
        self.parts, self.asking, self.healthy = None, None, None
        return left

    def _learn(self, url: str) -> None:
        if self.parts is not None:
            self.until(lambda: has_routes(url), _ROUTES_WITHIN_S)
        self.ours = is_ours(status_of(url))
        self._refuse_home_of_others()
        route = route_of(self.target, ours=self.ours)
        asking = Asking(url=url + route, payloads=payloads_of(self.target, url, route), target=self.target)
        until_s = self.clock.monotonic_s() + self.target.settle_within_s
        while True:
            with Traffic(asking, self.clock, keep_bodies=True) as traffic:
                self.clock.sleep_s(self.target.learn_s)
            if self._steady(traffic.now()):
                break
            if self.clock.monotonic_s() > until_s:
                raise ServingError(
                    f"{self.target.name} does not answer steadily at {asking.url} before any fault: "
                    f"{_words(traffic.now())}"
                )
        self._remember(asking, traffic)

    def _refuse_home_of_others(self) -> None:
        """An app that was built with a home of its own would be broken in earnest: its plan, its ledger, its files."""
        if self.ours and self.parts is not None and not self.parts.host.home.serving.is_dir():
            raise ServingError(
                f"{self.target.app} serves from a home of its own, which a drill must not break; name a builder "
                "instead: def app(args): return build_app(SPEC, settings_of(args))"
            )

    def _remember(self, asking: Asking, traffic: Traffic) -> None:
        """What was learned; a field called source that never names a model of failsoft's says something else."""
        seen = traffic.now()
        if not self.ours and not any(one.source in self.target.model_sources for one in seen):
            self.target = replace(self.target, source_field="")
        self.census = self._census()
        self.healthy = Healthy.of(seen, self.target.model_sources)
        self.asking = replace(asking, target=self.target, expected=Expectation(traffic.bodies))

    def _steady(self, answers: list[Answer]) -> bool:
        """Nothing but answers, about as many as were due, by the model where the app says who answers."""
        if len(answers) < _HEARD * self.target.rate_hz * self.target.learn_s or any(one.lost for one in answers):
            return False
        models = sum(by_model(one, self.target.model_sources) for one in answers)
        return not self.ours or models >= _BY_MODEL * len(answers)


def _words(answers: list[Answer]) -> str:
    """The last that was wrong."""
    if not answers:
        return "nothing answers"
    lost = [one for one in answers if one.lost]
    if lost:
        return f"{len(lost)} of {len(answers)} got {lost[-1].status or 'no answer'} {lost[-1].reason}"
    return f"the last one came from {answers[-1].source}: {answers[-1].reason}"
