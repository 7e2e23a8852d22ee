"""What a published folder holds: every file with its size and digest, bound by one file that is written last.

Manifest format 1, ``manifest.json``: ``format``, ``kind``, ``created_at_s`` (wall), ``files`` {relative path: {bytes,
digest}}, ``meta`` (small JSON of the owner), ``digest`` of all the former; of signed ones also ``signature``. Digests
are BLAKE3 (``blake3:…``), at about five times the speed of SHA-256. They find damage, whoever did it by accident; who
may write the folder can write fitting ones, and is found by the signature (:mod:`failsoft.artifacts.signing`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from blake3 import blake3

from failsoft.artifacts.signing import refuse_unsigned, signature_of
from failsoft.errors import ConfigError, DamagedArtifactError, IncompatibleArtifactError

FORMAT = 1
MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 4 * 1024 * 1024
_FIRST_DAY_S, _LAST_DAY_S = -62_135_596_800.0, 253_402_300_799.0
"""Of the years 1 and 9999: no calendar shows what lies beyond."""
_SMALL_CHUNK_BYTES = 512 * 1024
"""Where somebody waits for the processor meanwhile: read and digested within a fraction of a millisecond."""


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """Size and digest of one file."""

    size_bytes: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The contents of one published folder."""

    kind: str
    created_at_s: float
    files: Mapping[str, FileEntry]
    meta: Mapping[str, Any]
    signature: str = ""
    """Who made it; see :mod:`failsoft.artifacts.signing`. Empty: unsigned. No part of the digest, which it covers."""

    @property
    def digest(self) -> str:
        """Digest of everything the manifest says; equal digests mean equal contents."""
        return digest_bytes(_canonical(self._body()))

    def to_json(self) -> str:
        """JSON text that :func:`read_manifest` reads back."""
        signature = {"signature": self.signature} if self.signature else {}
        return json.dumps(self._body() | {"digest": self.digest} | signature, indent=1, sort_keys=True)

    def signed(self, name: str) -> Manifest:
        """Signed as an artifact of this name, where a key is set; what has a signature keeps it."""
        return self if self.signature else replace(self, signature=signature_of(self.kind, name, self.digest))

    def _body(self) -> dict[str, Any]:
        files = {name: {"bytes": entry.size_bytes, "digest": entry.digest} for name, entry in self.files.items()}
        return {
            "format": FORMAT,
            "kind": self.kind,
            "created_at_s": self.created_at_s,
            "files": files,
            "meta": dict(self.meta),
        }


def digest_bytes(content: bytes) -> str:
    """The digest of some bytes, with the algorithm's name in front."""
    return f"blake3:{blake3(content).hexdigest()}"


def digest_file(path: Path, beat: Callable[[], None] | None = None) -> str:
    """The digest of a file, read in pieces; after each of them ``beat`` is called, which may wait."""
    hasher, piece = blake3(), memoryview(bytearray(_CHUNK_BYTES if beat is None else _SMALL_CHUNK_BYTES))
    with path.open("rb", buffering=0) as content:
        while count := content.readinto(piece):
            hasher.update(piece[:count])
            if beat is not None:
                beat()
    return f"blake3:{hasher.hexdigest()}"


def describe(
    folder: Path,
    *,
    kind: str,
    created_at_s: float,
    meta: Mapping[str, Any],
    known: Mapping[str, FileEntry] | None = None,
) -> Manifest:
    """Digest every file below ``folder`` into a manifest (which is not written here).

    Args:
        folder: what the manifest is of.
        kind: what it is.
        created_at_s: wall time.
        meta: small JSON of the owner.
        known: entries of files that were digested while they were written; they are not read again.
    """
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    files = {name: (known or {}).get(name) or _entry(folder / name) for name in names}
    return Manifest(kind=kind, created_at_s=created_at_s, files=files, meta=meta)


def _entry(path: Path) -> FileEntry:
    return FileEntry(size_bytes=path.stat().st_size, digest=digest_file(path))


def read_manifest(folder: Path, *, kind: str | None = None) -> Manifest:
    """The manifest of a published folder, itself verified; the files are not read.

    Args:
        folder: the published folder.
        kind: what it has to be. Whoever reads a release says so: else who has no key writes another kind into the
            manifest, one that needs no signature.

    Raises:
        DamagedArtifactError: absent, torn, changed, of another kind, or naming files outside the folder.
        IncompatibleArtifactError: written in a newer format.
        UntrustedArtifactError: it must be signed, and is not by a holder of the key.
    """
    path = folder / MANIFEST_NAME
    try:
        if not path.is_file():
            raise DamagedArtifactError(f"{path} is absent, or no file")  # a pipe would keep its reader for ever
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise DamagedArtifactError(f"{path} is larger than {MAX_MANIFEST_BYTES} bytes; no manifest is")
        content = path.read_bytes()
    except OSError as error:
        raise DamagedArtifactError(f"{path} is absent or torn ({error.__class__.__name__}: {error})") from error
    manifest = parse_manifest(content, where=str(path))
    if kind is not None and manifest.kind != kind:
        raise DamagedArtifactError(f"{folder} is a {manifest.kind}, not a {kind}")
    refuse_outside(folder, manifest)
    signature, name = manifest.signature, Path(os.path.abspath(folder)).name  # a link's own, not that of where it leads
    refuse_unsigned(manifest.kind, name, manifest.digest, signature=signature, where=str(path))
    return manifest


def manifest_bytes(manifest: Manifest, name: str) -> bytes:
    """What is written of it.

    Raises:
        ConfigError: it is larger than any that is read back.
    """
    content = manifest.to_json().encode()
    if len(content) > MAX_MANIFEST_BYTES:
        raise ConfigError(
            f"the manifest of {name} would take {len(content)} bytes, and {MAX_MANIFEST_BYTES} are read at most; put "
            "what is large into a file of its own, or fewer files into it"
        )
    return content


def parse_manifest(content: bytes, *, where: str) -> Manifest:
    """A manifest from its JSON text, itself verified; where its files lie is the caller's to judge.

    Args:
        content: what :meth:`Manifest.to_json` gave.
        where: its path, for messages.

    Raises:
        DamagedArtifactError: torn or changed.
        IncompatibleArtifactError: written in a newer format.
    """
    try:
        body = json.loads(content)
        if body["format"] != FORMAT:
            raise IncompatibleArtifactError(
                f"{where} has format {body['format']}, this failsoft reads {FORMAT}; use the failsoft that wrote it"
            )
        manifest = _from_body(body)
        stored = body["digest"]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedArtifactError(f"{where} is absent or torn ({error.__class__.__name__}: {error})") from error
    if stored != manifest.digest:
        raise DamagedArtifactError(f"{where} was changed after it was written: its own digest does not fit")
    return manifest


def verify_files(folder: Path, manifest: Manifest, beat: Callable[[], None] | None = None) -> None:
    """Read every file and compare it with its entry.

    Args:
        folder: the published folder.
        manifest: of it.
        beat: as in :func:`digest_file`.

    Raises:
        DamagedArtifactError: naming the first file that is absent, of another size, of another digest, or that came
            later: whoever asks for it by name would read what nobody has verified. Hidden files are passed over.
    """
    verify_names(folder, manifest)
    for name in manifest.files:
        verify_file(folder, manifest, name, beat)


def verify_file(folder: Path, manifest: Manifest, name: str, beat: Callable[[], None] | None = None) -> None:
    """Read one file and compare it with its entry, whatever else lies beside it.

    Raises:
        DamagedArtifactError: it is not in the manifest, absent, of another size, or of another digest.
    """
    path, entry = folder / name, manifest.files.get(name)
    if entry is None:
        raise DamagedArtifactError(f"{path} is not named in its manifest")
    try:
        size_bytes = path.stat().st_size
        if size_bytes != entry.size_bytes:
            raise DamagedArtifactError(f"{path} has {size_bytes} bytes, its manifest says {entry.size_bytes}")
        if digest_file(path, beat) != entry.digest:
            raise DamagedArtifactError(f"{path} has the right size, but its digest is not the manifest's")
    except OSError as error:
        raise DamagedArtifactError(f"{path} can't be read: {error}") from error


def verify_part(folder: Path, manifest: Manifest, name: str) -> None:
    """Read one file, or all in one folder, and compare them with their entries; whatever else lies beside them.

    Raises:
        DamagedArtifactError: as :func:`verify_file`.
    """
    inside = [known for known in manifest.files if known.startswith(f"{name}/")]
    for known in inside or [name]:
        verify_file(folder, manifest, known)


def verify_names(folder: Path, manifest: Manifest) -> None:
    """Read no file, but see that none came later.

    Raises:
        DamagedArtifactError: naming one that the manifest does not. Hidden files are passed over.
    """
    named = {*manifest.files, MANIFEST_NAME}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in name.parts)
        inside = path.is_dir() and not path.is_symlink()  # where a link leads is not looked at here, but may be read
        if not hidden and not inside and name.as_posix() not in named:
            raise DamagedArtifactError(f"{path} is not named in the manifest: it was added after publishing; remove it")


def _from_body(body: dict[str, Any]) -> Manifest:
    files = {
        str(name): FileEntry(size_bytes=int(entry["bytes"]), digest=str(entry["digest"]))
        for name, entry in body["files"].items()
    }
    created_at_s = body["created_at_s"]
    if isinstance(created_at_s, bool) or not _FIRST_DAY_S <= created_at_s <= _LAST_DAY_S:
        raise ValueError(f"created_at_s is {created_at_s!r}, no time")
    return Manifest(
        kind=str(body["kind"]),
        created_at_s=created_at_s,
        files=files,
        meta=dict(body["meta"]),
        signature=str(body.get("signature", "")),
    )


def refuse_outside(folder: Path, manifest: Manifest) -> None:
    """Refuse a manifest that names files outside its folder.

    Raises:
        DamagedArtifactError: naming the first such file.
    """
    root = folder.resolve()
    for name in manifest.files:
        try:
            inside = (root / name).resolve().is_relative_to(root)
        except (OSError, ValueError, RuntimeError):  # a name that no file can have, or links that go round in circles
            inside = False
        if not inside:
            raise DamagedArtifactError(f"{folder}: the manifest names {name!r}, which lies outside the folder")


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
