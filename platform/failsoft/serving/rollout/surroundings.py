"""What surrounds the rollout: whom it tells, and what it asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from failsoft.artifacts.bundle import Baseline, Bundle, Role
from failsoft.artifacts.home import Home
from failsoft.artifacts.manifest import read_manifest, verify_file
from failsoft.artifacts.store import Artifact
from failsoft.errors import ArtifactError
from failsoft.health.aside import Aside
from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger, Side
from failsoft.serving.plan.plan import Colour, RoutingPlan

_ASK_AGAIN_S = 10.0
"""A baseline that could not be read is looked for again after so long."""


class Audience(Protocol):
    """Who is told of changes. Both return soon and never raise."""

    def plan_changed(self, plan: RoutingPlan) -> None:
        """A new plan is true: push it."""
        ...

    def record(self, kind: str, why: str, **data: Any) -> None:
        """Write an event to the ledger."""
        ...


class Surroundings(Audience, Protocol):
    """What the rollout needs to know and to tell. No method raises."""

    def healthy_bad_fraction(self, release: str) -> float | None:
        """Share of bad answers in the release's own healthy baseline; None: unknown."""
        ...

    def accuracy(self, release: str) -> float | None:
        """Share of right answers in the same; None: unknown."""
        ...

    def ready_fraction(self, plan: RoutingPlan) -> float | None:
        """Share of the subject's replicas that are ready, as last seen; None: unknown."""
        ...


class HomeSurroundings:
    """The surroundings in one home folder: its ledger and its releases.

    Args:
        home: where they lie.
        clock: tells when to look again for a baseline.
        on_plan: told of every new plan.
    """

    def __init__(self, home: Home, clock: Clock, on_plan: Callable[[RoutingPlan], None]) -> None:
        self._releases = home.releases(clock).root
        self._ledger = Ledger(home.ledger, clock, side=Side.SERVING, subject="rollout", aside=Aside(clock))
        self._clock = clock
        self._on_plan = on_plan
        self._baselines: dict[str, tuple[Baseline | None, float]] = {}
        self.ready: Mapping[Colour, float] = {}
        """Share of each colour's replicas that are ready, as last seen; a colour that is absent is unknown."""

    @property
    def unrecorded(self) -> int:
        """Events that the ledger refused; the plan goes on without them."""
        return self._ledger.unrecorded

    def plan_changed(self, plan: RoutingPlan) -> None:
        """Pass it on."""
        self._on_plan(plan)

    def record(self, kind: str, why: str, **data: Any) -> None:
        """Write an event; a ledger that can't be written is counted and stops nothing."""
        self._ledger.record(kind, why, **data)

    def ready_fraction(self, plan: RoutingPlan) -> float | None:
        """Of the subject's colour."""
        return self.ready.get(plan.subject)

    def healthy_bad_fraction(self, release: str) -> float | None:
        """From the release's baseline."""
        baseline = self._baseline(release)
        return None if baseline is None else baseline.weak_fraction

    def accuracy(self, release: str) -> float | None:
        """Likewise."""
        baseline = self._baseline(release)
        return None if baseline is None else baseline.accuracy

    def _baseline(self, release: str) -> Baseline | None:
        """Read once; an unreadable one is unknown and is tried again after a while."""
        now_s = self._clock.monotonic_s()
        baseline, read_s = self._baselines.get(release, (None, None))
        if baseline is None and (read_s is None or now_s - read_s >= _ASK_AGAIN_S):
            baseline = self._read_baseline(release)
            self._baselines[release] = (baseline, now_s)
        return baseline

    def _read_baseline(self, release: str) -> Baseline | None:
        """Only the small file that holds it is verified: weights are checked by whoever loads them."""
        path = self._releases / release
        try:
            manifest = read_manifest(path, kind="release")
            verify_file(path, manifest, Role.BASELINE)
            return Bundle.of(Artifact(name=release, path=path, manifest=manifest)).baseline()
        except (ArtifactError, TypeError, OSError):  # absent, damaged, or of another shape: unknown
            return None
