"""Looking into the checkpoints on a remote store, and at what lies where. For commands: it waits for the store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow

from failsoft.artifacts.address import below, hushed, shown
from failsoft.artifacts.manifest import Manifest
from failsoft.artifacts.remote_assembly import LANDING
from failsoft.artifacts.remote_place import place_of
from failsoft.artifacts.remote_store import RemoteArtifact, RemoteShelf, RemoteStore
from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import ArtifactError, ArtifactMissingError, ConfigError
from failsoft.health.clock import Clock
from failsoft.training.checkpoints.inspection import NEWEST, Finding, position_of
from failsoft.training.checkpoints.judged import Judged, metrics_of
from failsoft.training.checkpoints.retention import Rule, Shelved, removable

_KIND = "checkpoint"
_FOLDER = "checkpoints"


def remote_checkpoints(url: str) -> RemoteStore:
    """The checkpoints at ``<remote>/<run>`` or ``<remote>/<run>/checkpoints``.

    Raises:
        ConfigError: it is no address.
    """
    whole = url if url.partition("?")[0].rstrip("/").endswith(f"/{_FOLDER}") else below(url, _FOLDER)
    return RemoteStore(place_of(whole), kind=_KIND)


@contextmanager
def reached(remote: RemoteStore) -> Iterator[None]:
    """Within the block, what a file system raises becomes an error that names the place and the mend.

    Raises:
        ArtifactError: the store can't be reached, or refuses.
    """
    try:
        yield
    except (OSError, pyarrow.ArrowException) as error:
        raise ArtifactError(
            f"{remote.place.shown} can't be read or written: {error}; check the address, the network and the "
            "credentials that the store's library takes from the environment"
        ) from error


def shelf_of(remote: RemoteStore) -> RemoteShelf:
    """What is there.

    Raises:
        ArtifactMissingError: nothing is.
        ArtifactError: the store can't be reached.
    """
    with reached(remote):
        shelf = remote.shelf()
    if not (shelf.there or shelf.unfinished or shelf.foreign):
        raise ArtifactMissingError(f"no checkpoints are at {remote.place.shown}; the address ends with the run's name")
    return shelf


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One checkpoint, and where it is safe."""

    name: str
    manifest: Manifest
    here: bool
    there: bool
    metrics: Mapping[str, float]
    """What it may be judged by, found later or by its own words."""
    damage: str | None = None
    """What is known to be wrong with the copy there."""

    @property
    def where(self) -> list[str]:
        """Places that hold it."""
        return [place for place, holds in (("local", self.here), ("remote", self.there)) if holds]


@dataclass(frozen=True, kw_only=True)
class BothPlaces:
    """A run's checkpoints in both places, oldest first by position."""

    seen: tuple[Seen, ...]
    remote: str | None = None
    """The address of the remote place; None: there is none."""
    unreadable: str | None = None
    """Why the remote store could not be looked at."""
    unfinished: tuple[str, ...] = field(default=())
    """Folders there that are being written, or that a killed process left."""


def both_places(here: Sequence[Artifact], url: str | None, later: Judged | None = None) -> BothPlaces:
    """What lies where; a remote store that can't be reached leaves the local ones to be told.

    Args:
        here: the local ones.
        url: the remote place; None: none is known.
        later: what was found of some of them after they were published.
    """
    later = later or {}
    if url is None:
        return BothPlaces(seen=_merged(here, (), later))
    try:
        remote = remote_checkpoints(url)
        with reached(remote):
            shelf = remote.shelf()
    except (ArtifactError, ConfigError) as error:
        return BothPlaces(seen=_merged(here, (), later), remote=shown(url), unreadable=hushed(str(error), url))
    return BothPlaces(seen=_merged(here, shelf.there, later), remote=remote.place.shown, unfinished=shelf.unfinished)


def _merged(here: Sequence[Artifact], there: Sequence[RemoteArtifact], later: Judged) -> tuple[Seen, ...]:
    copies: Mapping[str, RemoteArtifact] = {one.manifest.digest: one for one in there}
    mine = {one.manifest.digest for one in here}
    places = [(one.name, one.manifest, True, copies.get(one.manifest.digest)) for one in here]
    places += [(one.name, one.manifest, False, one) for one in there if one.manifest.digest not in mine]
    seen = (
        Seen(
            name=name,
            manifest=manifest,
            here=is_here,
            there=copy is not None,
            metrics=metrics_of(manifest, later),
            damage=None if copy is None else copy.damage,
        )
        for name, manifest, is_here, copy in places
    )
    return tuple(sorted(seen, key=lambda one: (position_of(one.manifest), one.manifest.created_at_s)))


def verify_remote(remote: RemoteStore) -> list[Finding]:
    """Read every byte of every checkpoint there. Nothing is moved or removed."""
    shelf = shelf_of(remote)
    with reached(remote):
        found = [Finding(name=one.folder, damage=remote.verify(one)) for one in shelf.there]
    return found + [Finding(name=folder, damage=why) for folder, why in shelf.foreign.items()]


def prune_remote(
    remote: RemoteStore, rules: Sequence[Rule], *, unfinished: bool, done: bool
) -> tuple[list[str], list[str]]:
    """Folders that no rule keeps, removed when ``done``, and those that stay. Marked ones are left for people.

    Args:
        remote: where.
        rules: what stays.
        unfinished: also what nobody has finished; only while no run copies to there.
        done: remove them.
    """
    shelf = shelf_of(remote)
    known = [Shelved.of(one.folder, one.manifest) for one in shelf.there if one.damage is None]
    going = removable(known, rules) + (list(shelf.unfinished) if unfinished else [])
    with reached(remote):
        for folder in going if done else ():
            remote.remove(folder)
    return going, [one.folder for one in shelf.there if one.folder not in going]


def find_remote(remote: RemoteStore, asked: str) -> RemoteArtifact:
    """A checkpoint there by its name, its folder, its position, or as ``newest``.

    Raises:
        ArtifactMissingError: none of them fits.
    """
    there = sorted(shelf_of(remote).there, key=lambda one: position_of(one.manifest))
    if asked == NEWEST and there:
        return there[-1]
    for one in reversed(there):
        if asked in {one.name, one.folder} or (asked.isdecimal() and position_of(one.manifest) == int(asked)):
            return one
    known = ", ".join(one.name for one in there) or "none"
    raise ArtifactMissingError(f"no checkpoint {asked!r} at {remote.place.shown}; there: {known}")


def is_withdrawn(manifest: Manifest, gone: Collection[str]) -> bool:
    """Whether a checkpoint, here or there, is one of those that were taken back.

    Args:
        manifest: of the checkpoint.
        gone: what :func:`failsoft.training.checkpoints.withdrawn.withdrawn` names.
    """
    digits = manifest.meta.get(LANDING)  # drawn for its folder alone
    return manifest.digest in gone or (digits is not None and any(one.endswith(f".{digits}") for one in gone))


def bring(remote: RemoteStore, asked: str, into: ArtifactStore) -> Artifact:
    """Copy one from there into a local store, verified.

    Raises:
        DamagedArtifactError: it is not what its manifest says.
        ArtifactError: the store can't be reached, or one of that name is in the local store already.
    """
    found = find_remote(remote, asked)
    with reached(remote):
        return into.adopt(found.name, lambda aside: remote.fetch(found, aside), found.manifest)


@contextmanager
def brought_aside(remote: RemoteStore, clock: Clock, asked: Sequence[str]) -> Iterator[list[Artifact]]:
    """These checkpoints in a folder of their own, for the time of the block."""
    with TemporaryDirectory(prefix="failsoft-") as folder:
        yield [
            bring(remote, one, ArtifactStore(Path(folder) / str(place), clock, kind=_KIND))
            for place, one in enumerate(asked)
        ]


def row_of(seen: Seen) -> dict[str, Any]:
    """One checkpoint as plain JSON."""
    size = sum(entry.size_bytes for entry in seen.manifest.files.values())
    row: dict[str, Any] = {"name": seen.name, "created_at_s": seen.manifest.created_at_s, "bytes": size}
    row |= {"where": seen.where, "damage": seen.damage}
    return row | dict(seen.manifest.meta) | {"metrics": dict(seen.metrics)}
