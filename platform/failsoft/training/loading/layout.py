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

from failsoft.errors import ArtifactMissingError, ConfigError, IncompatibleArtifactError
from failsoft.health.json_object import json_value

FORMAT = 1
DIGEST_BYTES = 16
LAYOUT_NAME = "layout.json"


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
            body = json_value((self.folder / LAYOUT_NAME).read_text("utf-8"))
        except OSError as error:
            raise ArtifactMissingError(f"{self.folder} holds no {LAYOUT_NAME}; make it with write_shards") from error
        if body.get("format") != FORMAT:
            raise IncompatibleArtifactError(f"{self.folder} has layout format {body.get('format')}, this is {FORMAT}")
        return [str(shard) for shard in body["shards"]]

    @cached_property
    def _arrays(self) -> tuple[memoryview, memoryview, memoryview]:
        names = ("shard", "span", "digest")
        try:
            shard, span, digest = (_mapped(self.folder / f"{name}.npy") for name in names)
        except OSError as error:
            raise ArtifactMissingError(f"{self.folder} lacks an array of its layout: {error}") from error
        return shard, span, digest


def _mapped(path: Path) -> memoryview:
    """Flat, and with plain integers in it: numpy takes several times as long to give a single number."""
    return memoryview(np.load(path, mmap_mode="r").reshape(-1))


def write_shards(samples: Iterable[bytes], folder: Path, *, samples_per_shard: int = 10_000) -> ShardLayout:
    """Write samples into shards below ``folder`` with their layout, which is written last.

    Raises:
        ConfigError: ``samples_per_shard`` holds nothing.
    """
    if samples_per_shard < 1:
        raise ConfigError(f"samples_per_shard is {samples_per_shard}; a shard holds at least one sample")
    folder.mkdir(parents=True, exist_ok=True)
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
    (folder / LAYOUT_NAME).write_text(json.dumps({"format": FORMAT, "shards": names}), "utf-8")
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
