"""Folders that become visible last and whole, and never change after that.

Publishing: write into a hidden folder beside the target, digest, fsync every file, write the manifest, fsync the
folder, rename. A reader sees nothing or everything. Reading verifies digests; what does not verify is moved to
``quarantine/`` and the next older one is tried. Order comes from the manifest, never from names or mtimes.
"""

from __future__ import annotations

import errno
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failsoft.artifacts.asides import HIDDEN, being_filled, being_written, remove_files_left, rename_unless_taken, taken
from failsoft.artifacts.manifest import (
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    describe,
    manifest_bytes,
    read_manifest,
    verify_files,
)
from failsoft.artifacts.signing import refuse_unsigned
from failsoft.artifacts.syncing import sync_folder, sync_tree, write_synced
from failsoft.errors import (
    ArtifactError,
    ArtifactMissingError,
    ConfigError,
    DamagedArtifactError,
    IncompatibleArtifactError,
)
from failsoft.health.clock import Clock

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
QUARANTINE = "quarantine"
"""Folder of damaged artifacts, among the published ones."""
_PASSING = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EACCES, errno.EPERM}
)
"""Reasons not to read a file that say nothing about the file."""

_RACES = 100
"""So often may the newest be removed while it is being read."""

Fill = Callable[[Path], Mapping[str, FileEntry] | None]
"""Fills a hidden folder; may return the entries of files that it digested while writing them."""
Accept = Callable[[Manifest], bool]
Damage = Callable[[str, str], None]
"""Told the name of a damaged artifact and what is wrong with it, after it was put aside."""


class _GoneError(Exception):
    """Removed between listing and reading it."""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One published folder and its manifest."""

    name: str
    path: Path
    manifest: Manifest


class ArtifactStore:
    """Published folders of one kind below one root."""

    def __init__(self, root: Path, clock: Clock, *, kind: str) -> None:
        self.root = root
        self.kind = kind
        self._clock = clock

    def publish(self, name: str, write: Fill, *, meta: Mapping[str, Any]) -> Artifact:
        """Let ``write`` fill a hidden folder, then make it visible whole under ``name``.

        Raises:
            ConfigError: the name is not a plain file name.
            ArtifactError: the name is taken; published artifacts never change.
            OSError: the disk refused; nothing became visible and the hidden folder is gone.
        """

        def prepare(aside: Path) -> Manifest:
            known = write(aside)
            made = describe(aside, kind=self.kind, created_at_s=self._clock.wall_s(), meta=meta, known=known)
            return made.signed(name)

        return self._make_visible(name, prepare)

    def adopt(self, name: str, write: Fill, manifest: Manifest, *, beat: Callable[[], None] | None = None) -> Artifact:
        """Make a copy of what was published elsewhere visible, with the manifest that it has there. It is never signed.

        Args:
            name: of the copy.
            write: brings the files.
            manifest: of what was published.
            beat: as in :meth:`open`.

        Raises:
            ArtifactError: the name is taken.
            UntrustedArtifactError: it must be signed, and is not by a holder of the key; nothing was copied.
            DamagedArtifactError: what ``write`` brought is not what the manifest says; nothing became visible.
            OSError: the disk refused; nothing became visible.
        """

        def prepare(aside: Path) -> Manifest:
            signature, digest = manifest.signature, manifest.digest
            refuse_unsigned(self.kind, name, digest, signature=signature, where=f"what was to be copied as {name}")
            write(aside)
            verify_files(aside, manifest, beat)
            return manifest

        return self._make_visible(name, prepare)

    def refuse_taken(self, name: str) -> None:
        """Raise what :meth:`publish` would raise for this name, before any work is done."""
        if self._target(name).exists():
            raise taken(self._target(name))

    def _make_visible(self, name: str, prepare: Callable[[Path], Manifest]) -> Artifact:
        self.refuse_taken(name)
        aside = self.root / f"{HIDDEN}{name}-{uuid.uuid4().hex[:8]}"
        with being_filled(aside):
            try:
                manifest = prepare(aside)
                write_synced(aside / MANIFEST_NAME, manifest_bytes(manifest, name))
                sync_tree(aside)
                rename_unless_taken(aside, self._target(name))
            except BaseException:  # also KeyboardInterrupt: the half-written folder must not stay; re-raised
                shutil.rmtree(aside, ignore_errors=True)
                raise
        sync_folder(self.root)
        return Artifact(name=name, path=self.root / name, manifest=manifest)

    def open(self, name: str, *, unread: Accept = lambda _: False, beat: Callable[[], None] | None = None) -> Artifact:
        """A published folder, with every byte verified.

        Args:
            name: of the folder.
            unread: of those it accepts, which others verify, no file is read.
            beat: called after each piece that was read; it may wait, so that others get the processor.

        Raises:
            ArtifactMissingError: no such name.
            DamagedArtifactError: it is there, but torn or changed.
            IncompatibleArtifactError: it is whole, but of a newer format.
        """
        path = self._target(name)
        if not path.is_dir():
            known = ", ".join(artifact.name for artifact in self.listing()) or "none"
            raise ArtifactMissingError(f"no {self.kind} named {name!r} in {self.root}; there: {known}")
        artifact = Artifact(name=name, path=path, manifest=read_manifest(path, kind=self.kind))
        if not unread(artifact.manifest):
            verify_files(path, artifact.manifest, beat)
        return artifact

    def listing(self) -> list[Artifact]:
        """Every folder whose manifest reads, oldest first by creation time in the manifest; files are not verified."""
        found = []
        for name in self._names():
            try:
                manifest = read_manifest(self.root / name, kind=self.kind)
                found.append(Artifact(name=name, path=self.root / name, manifest=manifest))
            except ArtifactError:  # listed by `damaged`, handled by `newest`
                continue
        return sorted(found, key=lambda artifact: (artifact.manifest.created_at_s, artifact.name))

    def foreign(self) -> dict[str, str]:
        """Folders that another failsoft wrote, in a format that this one can't read, and what to do about each."""
        found = {}
        for name in self._names():
            try:
                read_manifest(self.root / name, kind=self.kind)
            except IncompatibleArtifactError as error:
                found[name] = str(error)
            except ArtifactError:  # damage, which `newest` handles
                continue
        return found

    def newest(
        self,
        *,
        order: Callable[[Manifest], float] | None = None,
        accept: Accept = lambda _: True,
        on_damage: Damage = lambda _name, _why: None,
        unread: Accept = lambda _: False,
    ) -> Artifact | None:
        """The newest artifact that is whole and accepted, or None. Damaged ones met on the way go to quarantine.

        Args:
            order: larger is newer; creation time by default.
            accept: a healthy one? What is not accepted is passed over and stays.
            on_damage: told about each one that was put aside.
            unread: as in :meth:`open`.

        Raises:
            OSError: nothing can be read just now (too many open files, a stale mount, no permission); that is no
                damage, so nothing is put aside.
        """
        for _ in range(_RACES):
            self._quarantine_unreadable(on_damage)
            candidates = [artifact for artifact in self.listing() if accept(artifact.manifest)]
            if order is not None:
                candidates.sort(key=lambda artifact: order(artifact.manifest))
            try:
                return self._first_whole(reversed(candidates), on_damage, unread)
            except _GoneError:  # where a writer keeps only the last ones, a newer one is there by now
                continue
        raise ArtifactMissingError(f"each {self.kind} in {self.root} was removed while it was being read; try again")

    def _first_whole(self, candidates: Iterable[Artifact], on_damage: Damage, unread: Accept) -> Artifact | None:
        for candidate in candidates:
            try:
                return self.open(candidate.name, unread=unread)
            except (DamagedArtifactError, ArtifactMissingError, FileNotFoundError) as error:
                if not candidate.path.exists():
                    raise _GoneError from error
                if not isinstance(error, DamagedArtifactError):
                    raise
                self._quarantine(candidate.name, error, on_damage)
        return None

    def remove(self, name: str) -> None:
        """Delete one artifact: first out of sight by a rename, then its bytes. One that is gone already is no error."""
        aside = self.root / f"{HIDDEN}gone-{name}-{uuid.uuid4().hex[:8]}"
        try:
            self._target(name).rename(aside)
        except FileNotFoundError:  # somebody else removed it just now
            return
        shutil.rmtree(aside, ignore_errors=True)  # out of sight already; a sweep removes what is left

    def put_aside(self, name: str, why: str, *, on_damage: Damage) -> None:
        """Move one that can't be used here to quarantine, and tell of it; where the disk refuses, it stays."""
        self._quarantine(name, DamagedArtifactError(why), on_damage)

    def sweep_orphans(self) -> int:
        """Remove hidden folders that a killed writer left; returns how many. For the store's single writer only."""
        orphans = [path for path in self.root.glob(f"{HIDDEN}*") if path.is_dir()] if self.root.is_dir() else []
        for orphan in orphans:
            shutil.rmtree(orphan, ignore_errors=True)
        return len(orphans)

    def _names(self) -> list[str]:
        paths = self.root.iterdir() if self.root.is_dir() else ()
        return sorted(p.name for p in paths if p.is_dir() and p.name != QUARANTINE and p.name[0] != ".")

    def _target(self, name: str) -> Path:
        if not _NAME.fullmatch(name) or name == QUARANTINE:
            raise ConfigError(f"{name!r} can't name a {self.kind}; use letters, digits, dots, dashes and underscores")
        return self.root / name

    def _quarantine_unreadable(self, on_damage: Damage) -> None:
        for name in self._names():
            try:
                read_manifest(self.root / name, kind=self.kind)
            except DamagedArtifactError as error:
                self._quarantine(name, error, on_damage)
            except ArtifactError:  # a newer format is not damage: it stays for the failsoft that wrote it
                continue

    def _quarantine(self, name: str, damage: DamagedArtifactError, on_damage: Damage) -> None:
        if isinstance(damage.__cause__, OSError) and damage.__cause__.errno in _PASSING:
            raise damage.__cause__
        folder, why = self.root / QUARANTINE, str(damage)
        try:
            folder.mkdir(exist_ok=True)
            (self.root / name).rename(folder / f"{name}-{uuid.uuid4().hex[:8]}")
        except FileNotFoundError:  # removed while it was read, or another process met the damage first and tells of it
            return
        except OSError as error:  # a disk that can't be written to must not keep the good ones from being found
            why = f"{why}; it stays where it is, since it could not be put aside: {error}"
        on_damage(name, why)


def write_durably(path: Path, content: bytes) -> None:
    """Replace one file: a reader sees the old or the new content, never a part, and a crash keeps one of them.

    What killed writers left aside in that folder is removed. A link goes on to lead where it led. What is no file
    (``/dev/stdout``, ``/dev/null``, a pipe) is written to: root would put a file in its place.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path = path.resolve() if path.is_symlink() else path
    aside = path.with_name(f"{HIDDEN}{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        with being_written(aside):
            write_synced(aside, content)
            aside.replace(path)
    except BaseException:  # the half-written file must not stay; re-raised
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    remove_files_left(path)
