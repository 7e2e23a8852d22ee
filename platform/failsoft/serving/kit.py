"""What a gateway needs of a release to answer without its model: the ladder, the text policy, the healthy baseline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from failsoft.artifacts.bundle import Baseline, Bundle, Role
from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import ArtifactMissingError, FailsoftError
from failsoft.serving.ladder import FallbackLadder
from failsoft.serving.rungs import ladder_of
from failsoft.serving.sanitizer import TextPolicy


@dataclass(frozen=True, kw_only=True)
class Kit:
    """The torch-free parts of one release."""

    release: str
    ladder: FallbackLadder
    text_policy: TextPolicy
    baseline: Baseline


class KitShelf:
    """Holds the kit in use, and keeps it when the next release's will not load.

    Args:
        load: the kit of a release by name; raises :class:`FailsoftError` when it can't be had.
        first: the kit to begin with.
    """

    def __init__(self, load: Callable[[str], Kit], first: Kit) -> None:
        self._load = load
        self.kit = first
        self.refusal: str | None = None
        """Why the wanted release's kit is not in use; None when it is."""

    async def follow(self, release: str | None) -> bool:
        """Have the kit of ``release`` in use if it can be had; True when another one came into use."""
        if release is None or release == self.kit.release:
            self.refusal = None
            return False
        try:
            self.kit, self.refusal = await asyncio.to_thread(self._load, release), None
        except FailsoftError as error:
            self.refusal = f"the fallback of release {release} did not load, that of {self.kit.release} stays: {error}"
            return False
        return True


def load_kit(artifact: Artifact) -> Kit:
    """The kit of a verified release.

    Raises:
        FailsoftError: a part is absent or does not load.
    """
    bundle = Bundle.of(artifact)
    return Kit(
        release=bundle.name,
        ladder=ladder_of(bundle),
        text_policy=TextPolicy.from_json(bundle.part(Role.TEXT_POLICY).read_text("utf-8")),
        baseline=bundle.baseline(),
    )


def open_shelf(releases: ArtifactStore, wanted: str) -> KitShelf:
    """A shelf with the kit of ``wanted``, or with that of the newest whole release when it can't be had.

    Raises:
        ArtifactMissingError: no release at all is whole; a gateway without any fallback must not start.
    """

    def load(release: str) -> Kit:
        return load_kit(releases.open(release))

    try:
        return KitShelf(load, load(wanted))
    except FailsoftError as error:
        newest = releases.newest()
        if newest is None:
            raise ArtifactMissingError(
                f"no whole release in {releases.root}, and {wanted} did not load: {error}"
            ) from error
        shelf = KitShelf(load, load_kit(newest))
        shelf.refusal = f"the fallback of release {wanted} did not load, that of {newest.name} is used: {error}"
        return shelf
