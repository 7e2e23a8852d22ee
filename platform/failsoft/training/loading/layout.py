"""Where each sample lies: shard, place and digest, for any number of samples, in arrays that processes share.

Format 1, a folder: ``layout.json`` ({"format", "shards": [path, …]}) and three arrays with one entry for each sample:
``shard.npy`` (int32), ``span.npy`` (N × 2 int64: first byte, number of bytes), ``digest.npy`` (N × 16 uint8: BLAKE3 cut
to 128 bits). The arrays are mapped, not read: 10^9 samples cost a worker no memory of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from blake3 import blake3

from failsoft.artifacts.store import write_durably
from failsoft.errors import ArtifactMissingError, ConfigError, DamagedArtifactError, IncompatibleArtifactError
from failsoft.health.json_object import json_object

FORMAT = 1
DIGEST_BYTES = 16
LAYOUT_NAME = "layout.json"
_FORMS: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
    "shard": (np.int32, ()),
    "span": (np.int64, (2,)),
    "digest": (np.uint8, (DIGEST_BYTES,)),
}


def sample_digest(data: bytes) -> bytes:
    """BLAKE3 of a sample's bytes, cut to 128 bits."""
    return blake3(data).digest(DIGEST_BYTES)


class Place(NamedTuple):
    """Where one sample lies, and what its bytes must add up to. Not a dataclass: one is made for each sample."""

    shard: str
    """Path below the source's root."""
    first: int
    length: int
    digest: bytes


class ShardLayout:
    """The places of all samples of a data set, from a folder that :func:`write_shards` made. Picklable."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._arrays[0])

    def place_of(self, index: int) -> Place:
        """Where sample ``index`` lies.

        Raises:
            ArtifactMissingError: the layout is not there.
            DamagedArtifactError: a part of it is torn, or of another layout: no sample is to blame.
        """
        shards, spans, digests = self._arrays
        at = DIGEST_BYTES * index
        return Place(
            self._shards[shards[index]],
            spans[2 * index],
            spans[2 * index + 1],
            bytes(digests[at : at + DIGEST_BYTES]),
        )

    def shard_of(self, index: int) -> str:
        """The shard that holds it."""
        return self._shards[self._arrays[0][index]]

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder}  # each process maps the arrays itself

    @cached_property
    def _shards(self) -> list[str]:
        try:
            body = json_object((self.folder / LAYOUT_NAME).read_bytes())
        except OSError as error:
            raise ArtifactMissingError(f"{self.folder} holds no {LAYOUT_NAME}; make it with write_shards") from error
        if body is None:
            raise self._damage(f"{LAYOUT_NAME} is torn")
        if body.get("format") != FORMAT:
            raise IncompatibleArtifactError(f"{self.folder} has layout format {body.get('format')}, this is {FORMAT}")
        if not isinstance(body.get("shards"), list):
            raise self._damage(f"{LAYOUT_NAME} names no shards")
        return [str(shard) for shard in body["shards"]]

    @cached_property
    def _arrays(self) -> tuple[memoryview, memoryview, memoryview]:
        try:
            shard, span, digest = (_mapped(self.folder / f"{name}.npy", *form) for name, form in _FORMS.items())
        except OSError as error:
            raise ArtifactMissingError(f"{self.folder} lacks an array of its layout: {error}") from error
        except (ValueError, EOFError, OverflowError, AttributeError, TypeError) as error:
            raise self._damage(str(error)) from error
        if not len(shard) * 2 * DIGEST_BYTES == len(span) * DIGEST_BYTES == len(digest) * 2:
            raise self._damage("its arrays are of different layouts: each has one entry for each sample")
        return shard, span, digest

    def _damage(self, what: str) -> DamagedArtifactError:
        return DamagedArtifactError(f"{self.folder}: {what}; copy the layout again, or make it with write_shards")


def _mapped(path: Path, kind: type[np.generic], each: tuple[int, ...]) -> memoryview:
    """Flat, and with plain integers in it: numpy takes several times as long to give a single number.

    Raises:
        OSError: it is not there.
        Exception: of several kinds; it is torn, or another array.
    """
    array = np.load(path, mmap_mode="r")
    if array.dtype != kind or array.shape[1:] != each:
        raise ValueError(f"{path.name} is an array of {array.dtype} {array.shape}, which is none of a layout")
    return memoryview(array.reshape(-1))


def write_shards(samples: Iterable[bytes], folder: Path, *, samples_per_shard: int = 10_000) -> ShardLayout:
    """Write samples into shards below ``folder`` with their layout, which is written last; an older one goes first.

    Raises:
        ConfigError: ``samples_per_shard`` holds nothing.
    """
    if samples_per_shard < 1:
        raise ConfigError(f"samples_per_shard is {samples_per_shard}; a shard holds at least one sample")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LAYOUT_NAME).unlink(missing_ok=True)
    names: list[str] = []
    shard_of: list[int] = []
    spans: list[tuple[int, int]] = []
    digests = bytearray()
    for number, part in enumerate(_parts(samples, samples_per_shard)):
        names.append(f"shard-{number:06d}.bin")
        (folder / names[-1]).write_bytes(b"".join(part))
        first = 0
        for sample in part:
            shard_of.append(number)
            spans.append((first, len(sample)))
            digests += sample_digest(sample)
            first += len(sample)
    np.save(folder / "shard.npy", np.array(shard_of, dtype=np.int32))
    np.save(folder / "span.npy", np.array(spans, dtype=np.int64).reshape(-1, 2))
    np.save(folder / "digest.npy", np.frombuffer(bytes(digests), dtype=np.uint8).reshape(-1, DIGEST_BYTES))
    write_durably(folder / LAYOUT_NAME, json.dumps({"format": FORMAT, "shards": names}).encode())
    return ShardLayout(folder)


def _parts(samples: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    for sample in samples:
        part.append(sample)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part
