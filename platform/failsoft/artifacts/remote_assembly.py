"""One folder on a remote store that several writers fill, each with files of its own, and one of them makes count.

Its name is drawn beforehand, ``<name>.<16 hex digits>``, by whoever leads, since no writer knows the digest of the
whole; the manifest repeats the digits (:data:`LANDING`), so that no folder can pass for another. As with
:mod:`failsoft.artifacts.remote_store`, only a whole manifest, which comes last, makes it visible.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from blake3 import blake3
from pyarrow import fs

from failsoft.artifacts.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, FileEntry, Manifest, parse_manifest
from failsoft.artifacts.remote_place import Place
from failsoft.errors import DamagedArtifactError

LANDING = "landing"
"""In ``meta`` of a manifest: the digits of its folder, instead of those of its digest."""
_CHUNK_BYTES = 4 * 1024 * 1024
_READ_BACK_BYTES = 8 * 1024 * 1024
"""Files up to this size are read back after writing; of larger ones the store's own word on their size must do."""

Beat = Callable[[], None]


class RemoteAssembly:
    """Every method may raise what the place's file system does: mostly OSError.

    Args:
        place: below which the folder lies.
        folder: its name.
    """

    def __init__(self, place: Place, folder: str) -> None:
        self._place = place
        self._fs: Any = place.filesystem
        self._path = f"{place.root}/{folder}"
        self.shown = f"{place.shown}/{folder}"

    def put(self, name: str, content: memoryview, *, beat: Beat) -> FileEntry:
        """Write one file, and see that the store has it.

        Args:
            name: of the file; no other writer's.
            content: must not change meanwhile.
            beat: called after each piece, so that a slow store is told from one that hangs.

        Raises:
            DamagedArtifactError: the store has something else than it was given.
        """
        path, hasher = self._ready(name), blake3()
        with self._fs.open_output_stream(path) as out:
            for begin in range(0, len(content), _CHUNK_BYTES):
                piece = content[begin : begin + _CHUNK_BYTES]
                out.write(piece)
                out.flush()  # S3's stream would take all of it at once, and then say nothing until it is there
                hasher.update(piece)
                beat()
        self._place.settle(path)
        entry = FileEntry(size_bytes=len(content), digest=f"blake3:{hasher.hexdigest()}")
        self._check(name, entry)
        return entry

    def say(self, name: str, content: bytes) -> None:
        """Write a small file whole."""
        path = self._ready(name)
        with self._fs.open_output_stream(path) as out:
            out.write(content)
        self._place.settle(path)

    def said(self, name: str) -> bytes | None:
        """A small file; None when it is not there."""
        try:
            with self._fs.open_input_stream(f"{self._path}/{name}") as stream:
                return read_small(stream)
        except FileNotFoundError:
            return None

    def sizes(self) -> dict[str, int]:
        """Of what is there."""
        infos = self._fs.get_file_info(fs.FileSelector(self._path, allow_not_found=True, recursive=True))
        begin = len(self._path)
        return {info.path[begin:].strip("/"): int(info.size) for info in infos if info.type is fs.FileType.File}

    def bound(self) -> bool:
        """Whether it counts already: a writer was killed between making it so and telling."""
        content = self.said(MANIFEST_NAME)
        with suppress(DamagedArtifactError):
            return content is not None and bool(parse_manifest(content, where=self.shown))
        return False

    def bind(self, manifest: Manifest) -> None:
        """Make it count, once everything that the manifest names is there with its size.

        Raises:
            DamagedArtifactError: something is not, or the store gave another manifest back than it took.
        """
        sizes = self.sizes()
        for name, entry in manifest.files.items():
            if sizes.get(name) != entry.size_bytes:
                raise DamagedArtifactError(
                    f"{self.shown}/{name} has {sizes.get(name, 'no')} bytes after writing {entry.size_bytes}"
                )
        self.say(MANIFEST_NAME, manifest.to_json().encode())
        if parse_manifest(self.said(MANIFEST_NAME) or b"", where=self.shown) != manifest:
            raise DamagedArtifactError(f"{self.shown}: the store gave another manifest back than it took")
        self._place.settle(self._path)
        self._place.settle(self._place.root)

    def drop(self, name: str) -> None:
        """A small file is of no more use."""
        with suppress(FileNotFoundError):
            self._fs.delete_file(f"{self._path}/{name}")

    def _ready(self, name: str) -> str:
        if self._place.has_folders:
            self._fs.create_dir(self._path, recursive=True)
        return f"{self._path}/{name}"

    def _check(self, name: str, entry: FileEntry) -> None:
        if entry.size_bytes > _READ_BACK_BYTES:
            size = self._fs.get_file_info(f"{self._path}/{name}").size
            same = size == entry.size_bytes
        else:
            content = self.said(name) or b""
            size, same = len(content), f"blake3:{blake3(content).hexdigest()}" == entry.digest
        if not same:
            raise DamagedArtifactError(
                f"{self.shown}/{name} has {size} bytes, not the {entry.size_bytes} that were given"
            )


def read_small(stream: Any) -> bytes:
    """What a manifest or a note says; of what is larger than any, only so much that it can't be whole."""
    content = bytearray()
    while piece := stream.read(MAX_MANIFEST_BYTES - len(content)):
        content += piece
    return bytes(content)
