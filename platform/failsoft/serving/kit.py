"""What a gateway needs of a release to answer without its model: the ladder, the text policy, the healthy baseline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from failsoft.artifacts.bundle import Baseline, Bundle, Role
from failsoft.artifacts.manifest import Manifest, verify_names
from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import ArtifactMissingError, ConfigError, FailsoftError
from failsoft.health.clock import SystemClock
from failsoft.serving.fallback.ladder import FallbackLadder
from failsoft.serving.intake.sanitizer import TextPolicy
from failsoft.serving.pacing import LoadingPolicy, Pace
from failsoft.serving.plan.plan import RoutingPlan
from failsoft.serving.task import Task


@dataclass(frozen=True, kw_only=True)
class Kit:
    """The torch-free parts of one release."""

    release: str
    ladder: FallbackLadder
    text_policy: TextPolicy | None
    """None where items are no texts."""
    baseline: Baseline | None
    """None for a release of an own model that was published without: the watch is not armed then, and says so."""
    not_armed: tuple[str, ...] = ()
    """What this release was published without, in words."""


class KitShelf:
    """Holds the kits in use, and keeps them when those of the next releases will not load.

    Args:
        load: the kit of a release by name; raises :class:`FailsoftError` when it can't be had.
        first: the kit to begin with.
    """

    def __init__(self, load: Callable[[str], Kit], first: Kit) -> None:
        self._load = load
        self.kit = first
        """Of the plan's subject: what it is judged by, and how texts are cleaned for it."""
        self.in_service = first
        """Of the release that serves: its ladder answers callers. Another one than the subject's during a trial."""
        self.refusal: str | None = None
        """Why a wanted release's kit is not in use; None when all are."""

    @property
    def known_labels(self) -> frozenset[str]:
        """All labels that the releases in use gave on validation data; empty when that is not known of one of them."""
        mixes = [kit.baseline.label_mix if kit.baseline is not None else {} for kit in (self.kit, self.in_service)]
        return frozenset().union(*mixes) if all(mixes) else frozenset()

    async def follow(self, plan: RoutingPlan) -> bool:
        """Have the kits that ``plan`` wants in use as far as they can be had; True when another one came into use."""
        before, self.refusal = (self.kit, self.in_service), None
        self.kit = await self._kit_of(plan.subject_release, self.kit)
        self.in_service = await self._kit_of(plan.release_in_service, self.in_service)
        return (self.kit, self.in_service) != before

    async def _kit_of(self, release: str, in_use: Kit) -> Kit:
        for kit in (in_use, self.kit, self.in_service):
            if kit.release == release:
                return kit
        try:
            return await asyncio.to_thread(self._load, release)
        except (FailsoftError, OSError) as error:
            self.refusal = f"the fallback of release {release} did not load, that of {in_use.release} stays: {error}"
            return in_use


def load_kit(artifact: Artifact, task: Task, *, unread: bool = False) -> Kit:
    """The kit of a verified release; with ``unread`` of one whose files are verified as they are read.

    Raises:
        FailsoftError: a part is absent or does not load, or the task's last rung does not answer everything.
    """
    bundle = Bundle.of(artifact, unread=unread)
    try:
        return _kit_of(bundle, task)
    except (FailsoftError, OSError):
        raise
    except Exception as error:  # anybody's inputs: said in words, a gateway keeps the kit that it has
        raise ConfigError(
            f"release {bundle.name} can't be made ready for its callers: {error.__class__.__name__}: {error}; look at "
            "what the app's inputs and rungs do with its files"
        ) from error


def _kit_of(bundle: Bundle, task: Task) -> Kit:
    return Kit(
        release=bundle.name,
        ladder=task.ladder_of(bundle),
        text_policy=task.inputs.policy_of(bundle),
        baseline=bundle.baseline() if bundle.has(Role.BASELINE) else None,
        not_armed=tuple(bundle.meta.get("not_armed") or ()),
    )


def _reads_by_role(manifest: Manifest) -> bool:
    """Whether nobody's own code reads the release, past the names that are verified."""
    return not manifest.meta.get("own_model")


def open_shelf(releases: ArtifactStore, wanted: str, task: Task) -> KitShelf:
    """A shelf with the kit of ``wanted``, or with that of the newest whole release when it can't be had.

    Raises:
        ArtifactMissingError: no release at all is whole; a gateway without any fallback must not start.
    """

    def load(release: str, beat: Callable[[], None] | None = None) -> Kit:
        """Weights are for those who load them to verify: reading some hundred MB here would slow live answers."""
        artifact = releases.open(release, unread=_reads_by_role, beat=beat)
        verify_names(artifact.path, artifact.manifest)
        return load_kit(artifact, task, unread=_reads_by_role(artifact.manifest))

    def load_beside_callers(release: str) -> Kit:
        """An own model's files are all read here; the kit in use answers meanwhile."""
        return load(release, Pace(LoadingPolicy(), SystemClock(), spare=lambda: True, on_hurry=lambda _why: None).beat)

    try:
        return KitShelf(load_beside_callers, load(wanted))
    except (FailsoftError, OSError) as error:
        newest = releases.newest()
        if newest is None:
            raise ArtifactMissingError(
                f"no whole release in {releases.root}, and {wanted} did not load: {error}"
            ) from error
        shelf = KitShelf(load_beside_callers, load_kit(newest, task))
        shelf.refusal = f"the fallback of release {wanted} did not load, that of {newest.name} is used: {error}"
        return shelf
