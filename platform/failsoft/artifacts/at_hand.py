"""What a machine needs before anything starts on it: the newest whole artifact, here or from a remote store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow

from failsoft.artifacts.manifest import Manifest
from failsoft.artifacts.remote_store import RemoteArtifact, RemoteStore
from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import ArtifactError, ArtifactMissingError, DamagedArtifactError, UntrustedArtifactError

_NOTHING_YET = float("-inf")


@dataclass(frozen=True, kw_only=True)
class Sought:
    """Which artifact is wanted."""

    name: str | None = None
    """One of this name; None: the newest."""
    order: Callable[[Manifest], float] = field(default=lambda manifest: manifest.created_at_s)
    """Larger is newer."""
    accept: Callable[[Manifest], bool] = field(default=lambda _: True)
    """A healthy one? Others are passed over."""

    def fits(self, name: str, manifest: Manifest) -> bool:
        """Whether this one may be it."""
        return self.name in (None, name) and self.accept(manifest)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is here now, verified."""

    artifact: Artifact
    brought: bool
    """It came from the remote store just now."""
    remarks: tuple[str, ...] = ()
    """What did not work on the way: damaged ones, a store that can't be reached."""


def at_hand(store: ArtifactStore, sought: Sought, remote: RemoteStore | None = None) -> Found | None:
    """Have the newest whole one here; None when there is none anywhere.

    A remote one is only fetched when it is newer than what is whole here. One that arrives damaged, or that
    must be signed and is not, is passed over for the one before it. Several machines may do so with one shared store at
    the same time: the first one's copy is taken.

    Args:
        store: where it shall be. Damaged ones met on the way go to quarantine.
        sought: which one.
        remote: where copies are; None: nowhere.

    Raises:
        ArtifactError: nothing whole is here, and the remote store can't be reached or has none that can be used.
    """
    remarks: list[str] = []
    here = _here(store, sought, remarks)
    if remote is None:
        return None if here is None else Found(artifact=here, brought=False, remarks=tuple(remarks))
    newer_than = _NOTHING_YET if here is None else sought.order(here.manifest)
    try:
        with reached(remote):
            brought = _brought(store, sought, remote, newer_than=newer_than, remarks=remarks)
    except ArtifactError as error:
        if here is None:
            raise
        remarks.append(f"{error}; what is here must do")
        brought = None
    if brought is not None:
        return Found(artifact=brought, brought=True, remarks=tuple(remarks))
    if here is None and remarks:
        raise DamagedArtifactError(f"no whole {store.kind} is here or at {remote.place.shown}: {'; '.join(remarks)}")
    return None if here is None else Found(artifact=here, brought=False, remarks=tuple(remarks))


def _here(store: ArtifactStore, sought: Sought, remarks: list[str]) -> Artifact | None:
    def put_aside(name: str, why: str) -> None:
        remarks.append(f"{name} here is damaged and was put aside: {why}")

    if sought.name is None:
        return store.newest(order=sought.order, accept=sought.accept, on_damage=put_aside)
    try:
        return store.open(sought.name)
    except ArtifactMissingError:
        return None
    except DamagedArtifactError as error:
        store.put_aside(sought.name, str(error), on_damage=put_aside)
        return None


def _brought(
    store: ArtifactStore, sought: Sought, remote: RemoteStore, *, newer_than: float, remarks: list[str]
) -> Artifact | None:
    there = [one for one in remote.shelf().there if sought.fits(one.name, one.manifest)]
    for one in sorted(there, key=lambda one: sought.order(one.manifest), reverse=True):
        if not sought.order(one.manifest) > newer_than:
            return None
        try:
            return _adopted(store, remote, one)
        except DamagedArtifactError as error:
            remarks.append(f"{one.name} at {remote.place.shown} is damaged: {error}")
        except UntrustedArtifactError as error:
            remarks.append(f"{one.name} at {remote.place.shown} is not used: {error}")
    return None


def _adopted(store: ArtifactStore, remote: RemoteStore, one: RemoteArtifact) -> Artifact:
    if one.damage is not None:
        raise DamagedArtifactError(one.damage)
    try:
        return store.adopt(one.name, lambda aside: remote.fetch(one, aside), one.manifest)
    except (DamagedArtifactError, UntrustedArtifactError):
        raise
    except ArtifactError:  # another machine has brought it meanwhile
        return store.open(one.name)


@contextmanager
def reached(remote: RemoteStore) -> Iterator[None]:
    """Within the block, what a file system raises becomes an error that names the place and the mend.

    Raises:
        ArtifactError: the store can't be reached or refuses, or the disk here does.
    """
    try:
        yield
    except (OSError, pyarrow.ArrowException) as error:
        raise ArtifactError(
            f"{remote.place.shown} can't be used ({error}); check the address, the "
            "network, the credentials that the store's library takes from the environment, and the space there and here"
        ) from error
