"""Which release serves now, as the stored routing plan says it: what a new one is compared with, and what is kept."""

from __future__ import annotations

from dataclasses import dataclass

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.errors import ArtifactError
from failsoft.health.clock import Clock
from failsoft.serving.plan.plan import Stage
from failsoft.serving.plan.planstore import PlanStore


@dataclass(frozen=True, kw_only=True)
class Roles:
    """What the releases of a home are to the plan."""

    served: str | None
    """Callers get it for the most part; None: no plan was ever stored."""
    stage: str | None
    """Of the plan's subject."""
    on_trial: str | None
    """The subject, where another one serves."""
    loaded: frozenset[str]
    """Every release that a colour has, or is to have, in memory."""

    def in_words(self) -> dict[str, str]:
        """What each release in use is to the plan."""
        words = dict.fromkeys(sorted(self.loaded), "loaded, ready to go back to")
        if self.on_trial is not None:
            words[self.on_trial] = "given up" if self.stage == Stage.REJECTED else f"on trial in {self.stage}"
        if self.served is not None:
            words[self.served] = "served"
        return words


def roles_of(home: Home) -> Roles:
    """As the newest stored plan says.

    Raises:
        PlanStoreError: what is stored can't be read. That is not the same as no plan.
    """
    found = PlanStore(home.serving).load()
    if found is None:
        return Roles(served=None, stage=None, on_trial=None, loaded=frozenset())
    plan = found.state.plan
    served = plan.release_in_service
    return Roles(
        served=served,
        stage=str(plan.stage),
        on_trial=plan.subject_release if plan.subject_release != served else None,
        loaded=frozenset(release for release in plan.releases.values() if release),
    )


def served_release(home: Home, clock: Clock) -> Bundle | None:
    """The release that serves now, verified; None where no plan is stored, or the release is no longer whole there.

    Raises:
        PlanStoreError: the plan can't be read.
    """
    name = roles_of(home).served
    try:
        return None if name is None else Bundle.of(home.releases(clock).open(name))
    except ArtifactError:  # the newest published one is the reference then
        return None
