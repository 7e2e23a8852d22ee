"""Published folders on a store that has no rename: files first, the manifest last, which is what makes them count.

Below the root lies one folder for each artifact, ``<name>.<first 16 digits of the manifest's digest>``, so that two
writers never write different bytes to one object, and what is there never changes; what several writers made together
(:mod:`failsoft.artifacts.remote_assembly`) has digits that were drawn for it. A folder without a whole manifest is
not there for readers: it is being written, or was left by a writer that was killed. What turns out damaged gets a mark
beside it (``damaged.txt``), since nothing can be moved out of the way. Whatever a reader fetches is verified by digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow
from blake3 import blake3
from pyarrow import fs

from failsoft.artifacts.manifest import MANIFEST_NAME, FileEntry, Manifest, parse_manifest, refuse_outside
from failsoft.artifacts.remote_assembly import LANDING, read_small
from failsoft.artifacts.remote_place import Place
from failsoft.artifacts.store import Artifact
from failsoft.errors import DamagedArtifactError, IncompatibleArtifactError

_MARK = "damaged.txt"
_CHUNK_BYTES = 4 * 1024 * 1024
_DIGITS = 16
_READ_BACK_BYTES = 8 * 1024 * 1024
"""Files up to this size are read back after writing; of larger ones the store's own word on their size must do."""

Beat = Callable[[], None]


def _no_beat() -> None:
    """Nobody waits for a word."""


@dataclass(frozen=True, kw_only=True)
class RemoteArtifact:
    """One published folder on the remote store."""

    folder: str
    """Its name there."""
    manifest: Manifest
    damage: str | None = None
    """What is known to be wrong with it: a mark, an absent file, a wrong size. None does not mean verified."""

    @property
    def name(self) -> str:
        """The name that it was published under."""
        return self.folder.rpartition(".")[0]


@dataclass(frozen=True, kw_only=True)
class RemoteShelf:
    """Everything at one place, from one listing and the manifests."""

    there: tuple[RemoteArtifact, ...] = ()
    """What counts, oldest first by creation time in the manifest; damaged ones included."""
    unfinished: tuple[str, ...] = ()
    """Folders without a whole manifest."""
    foreign: Mapping[str, str] = field(default_factory=dict)
    """Folders in a format that this failsoft can't read, and what to do about each."""


class RemoteStore:
    """Published folders of one kind at one place. Every method may raise what its file system does: mostly OSError."""

    def __init__(self, place: Place, *, kind: str) -> None:
        self.place = place
        self.kind = kind
        self._fs = place.filesystem
        self._read: dict[str, Manifest] = {}

    def shelf(self) -> RemoteShelf:
        """What is there now. Bytes of files are not read; their sizes are compared."""
        there, unfinished, foreign = [], [], {}
        for folder, sizes in sorted(self._folders().items()):
            try:
                found = self._found(folder, sizes)
            except IncompatibleArtifactError as error:
                foreign[folder] = str(error)
                continue
            if found is None:
                unfinished.append(folder)
            else:
                there.append(found)
        there.sort(key=lambda one: (one.manifest.created_at_s, one.folder))
        return RemoteShelf(there=tuple(there), unfinished=tuple(unfinished), foreign=foreign)

    def put(self, artifact: Artifact, *, beat: Beat = _no_beat) -> str:
        """Copy a local artifact there; it counts when this returns. One that is there already is left as it is.

        Only its signature is that of the local one then: keys change, and nobody could use the copies of before.

        The local files are opened before anything else, so that pruning them meanwhile takes nothing away.

        Returns:
            The folder's name there.

        Raises:
            DamagedArtifactError: the local files are not what their manifest says, or the store gave other bytes back.
            FileNotFoundError: the artifact was removed here before it was begun.
        """
        folder = folder_name(artifact.name, artifact.manifest)
        with ExitStack() as files:
            sources = {name: files.enter_context((artifact.path / name).open("rb")) for name in artifact.manifest.files}
            if self._committed(folder):
                if artifact.manifest.signature:
                    self._sign(folder, artifact.manifest)
                return folder
            try:
                self._copy(sources, folder, artifact.manifest, beat)
            except BaseException:  # also a KeyboardInterrupt: nothing half-written may stay; re-raised
                self._discard(folder)
                raise
        return folder

    def fetch(self, found: RemoteArtifact, into: Path, *, beat: Beat = _no_beat) -> None:
        """Copy its files into a folder that nobody reads yet; who adopts the folder verifies them.

        Raises:
            DamagedArtifactError: a file is absent, of another size or digest, or outside of the folder.
        """
        refuse_outside(into, found.manifest)
        for name, entry in found.manifest.files.items():
            path = into / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as out:
                self._read_whole(found.folder, name, entry, out.write, beat)

    def verify(self, found: RemoteArtifact, *, beat: Beat = _no_beat) -> str | None:
        """Read every byte; says what is wrong, or None."""
        try:
            for name, entry in found.manifest.files.items():
                self._read_whole(found.folder, name, entry, len, beat)
        except DamagedArtifactError as error:
            return str(error)
        return found.damage

    def mark_damaged(self, folder: str, why: str) -> None:
        """Say so beside it, for every later reader, and for the rules of keeping."""
        self._write(f"{self._path(folder)}/{_MARK}", why.encode())

    def remove(self, folder: str) -> None:
        """First the manifest, so that it counts no more, then the rest. One that is gone already is no error."""
        with suppress(FileNotFoundError):  # never finished, or somebody else was first
            self._fs.delete_file(f"{self._path(folder)}/{MANIFEST_NAME}")
        self._read.pop(folder, None)
        with suppress(FileNotFoundError):  # a store without folders: gone with its last object
            self._fs.delete_dir(self._path(folder))

    def _folders(self) -> dict[str, dict[str, int]]:
        """Each folder's files and their sizes, by one recursive listing."""
        root = self.place.root
        found: dict[str, dict[str, int]] = {}
        for info in self._fs.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True)):
            folder, _, name = info.path[len(root) :].strip("/").partition("/")
            if name and info.type is fs.FileType.File:
                found.setdefault(folder, {})[name] = int(info.size)
            elif not name and info.type is fs.FileType.Directory:
                found.setdefault(folder, {})
        return found

    def _found(self, folder: str, sizes: Mapping[str, int]) -> RemoteArtifact | None:
        if MANIFEST_NAME not in sizes:
            return None
        manifest = self._manifest(folder)
        if manifest is None or manifest.kind != self.kind or folder_name(folder.rpartition(".")[0], manifest) != folder:
            return None
        return RemoteArtifact(folder=folder, manifest=manifest, damage=_damage(manifest, sizes))

    def _manifest(self, folder: str) -> Manifest | None:
        """None while there is no whole one: being written, torn by a kill, or removed just now."""
        if folder not in self._read:
            path = f"{self._path(folder)}/{MANIFEST_NAME}"
            try:
                with self._fs.open_input_stream(path) as stream:
                    self._read[folder] = parse_manifest(read_small(stream), where=f"{self.place.shown}/{folder}")
            except (FileNotFoundError, DamagedArtifactError):
                return None
        return self._read[folder]

    def _committed(self, folder: str) -> bool:
        infos = self._fs.get_file_info(fs.FileSelector(self._path(folder), allow_not_found=True, recursive=True))
        begin = len(self._path(folder))
        sizes = {info.path[begin:].strip("/"): int(info.size) for info in infos if info.type is fs.FileType.File}
        found = self._found(folder, sizes)
        return found is not None and found.damage is None

    def _copy(self, sources: Mapping[str, IO[bytes]], folder: str, manifest: Manifest, beat: Beat) -> None:
        path = self._path(folder)
        if self.place.has_folders:
            for parent in sorted({f"{path}/{name}".rpartition("/")[0] for name in sources}):
                self._fs.create_dir(parent, recursive=True)
        for name, source in sources.items():
            self._upload(source, f"{path}/{name}", manifest.files[name], beat)
        for name, entry in manifest.files.items():
            self._check(folder, name, entry, beat)
        self._bind(folder, manifest)
        self.place.settle(path)
        self.place.settle(self.place.root)

    def _bind(self, folder: str, manifest: Manifest) -> None:
        self._write(f"{self._path(folder)}/{MANIFEST_NAME}", manifest.to_json().encode())
        self._read.pop(folder, None)
        if self._manifest(folder) != manifest:
            raise DamagedArtifactError(
                f"{self.place.shown}/{folder}: the store gave another manifest back than it took"
            )

    def _sign(self, folder: str, manifest: Manifest) -> None:
        self._read.pop(folder, None)
        if self._manifest(folder) != manifest:
            self._bind(folder, manifest)

    def _upload(self, source: IO[bytes], path: str, entry: FileEntry, beat: Beat) -> None:
        hasher = blake3()
        with self._fs.open_output_stream(path) as out:
            for piece in _pieces(source):
                hasher.update(piece)
                out.write(piece)
                out.flush()  # S3's stream would take all of it at once, and then say nothing until it is there
                beat()
        if f"blake3:{hasher.hexdigest()}" != entry.digest:
            raise DamagedArtifactError(f"{source.name} is not what its manifest says, so it is not copied")
        self.place.settle(path)

    def _check(self, folder: str, name: str, entry: FileEntry, beat: Beat) -> None:
        """That the store has it: by its size, and by its bytes where that is cheap."""
        if entry.size_bytes <= _READ_BACK_BYTES:
            self._read_whole(folder, name, entry, len, beat)
            return
        size = self._fs.get_file_info(f"{self._path(folder)}/{name}").size
        if size != entry.size_bytes:
            raise DamagedArtifactError(
                f"{self.place.shown}/{folder}/{name} has {size} bytes after writing {entry.size_bytes}"
            )

    def _read_whole(
        self, folder: str, name: str, entry: FileEntry, take: Callable[[bytes], object], beat: Beat
    ) -> None:
        where, hasher, size = f"{self.place.shown}/{folder}/{name}", blake3(), 0
        try:
            with self._fs.open_input_stream(f"{self._path(folder)}/{name}") as stream:
                for piece in _pieces(stream):
                    hasher.update(piece)
                    size += len(piece)
                    if size > entry.size_bytes:
                        raise DamagedArtifactError(f"{where} has more bytes than its manifest says")
                    take(piece)
                    beat()
        except FileNotFoundError as error:
            raise DamagedArtifactError(f"{where} is absent") from error
        if size != entry.size_bytes or f"blake3:{hasher.hexdigest()}" != entry.digest:
            raise DamagedArtifactError(f"{where} has {size} bytes that are not those of its manifest")

    def _write(self, path: str, content: bytes) -> None:
        with self._fs.open_output_stream(path) as out:
            out.write(content)
        self.place.settle(path)

    def _discard(self, folder: str) -> None:
        """Not what another writer of the same bytes has finished meanwhile."""
        try:
            if not self._committed(folder):
                self.remove(folder)
        except (OSError, pyarrow.ArrowException):  # the store is away; a later sweep takes what was never finished
            return

    def _path(self, folder: str) -> str:
        return f"{self.place.root}/{folder}"


def folder_name(name: str, manifest: Manifest) -> str:
    """The folder of an artifact on a remote store; of one that several writers made there, the one they met in."""
    met = manifest.meta.get(LANDING)
    return f"{name}.{met if isinstance(met, str) else manifest.digest.partition(':')[2][:_DIGITS]}"


def _damage(manifest: Manifest, sizes: Mapping[str, int]) -> str | None:
    if _MARK in sizes:
        return "marked as damaged"
    for name, entry in manifest.files.items():
        if sizes.get(name) != entry.size_bytes:
            return f"{name} has {sizes.get(name, 'no')} bytes, its manifest says {entry.size_bytes}"
    return None


def _pieces(stream: Any) -> Iterator[bytes]:
    while piece := stream.read(_CHUNK_BYTES):
        yield piece
