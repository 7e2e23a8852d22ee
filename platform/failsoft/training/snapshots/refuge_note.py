"""What lies beside a snapshot in memory of the host and makes it one: whose it is, of which moment, what is where.

A note is written as soon as the numbers are whole, again when their checksum is known, and removed before they are
overwritten: no note, no snapshot. It is JSON below a line with its own digest; reading it runs no code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray

from failsoft.artifacts.manifest import digest_bytes
from failsoft.health.json_object import json_object
from failsoft.training.rng import HeldRng, RngState
from failsoft.training.snapshots.snapshot_layout import Division, Part, divide
from failsoft.training.snapshots.snapshot_place import SnapshotPlace

FORMAT = 1
_BLOCK_WORDS = 8192
_PIECE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose snapshot it is; nobody else may use it."""

    run: str
    """Key of the run, drawn at its first start and kept in its folder: another run at the same place has another."""
    rank: int
    world: int
    bound: str
    """Digest of what the run is about."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Which moment of which group of workers; equal on two ranks exactly when their snapshots belong together."""

    group: str
    """Drawn anew by each group of workers."""
    number: int
    """Counts the group's snapshots."""
    position: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Note:
    """One rank's part of one snapshot."""

    owner: Owner
    moment: Moment
    body: str
    """Name of the file that holds the numbers."""
    size_bytes: int
    checksum: str
    """Of the numbers; "" until they are summed up. They are whole all the same: the note is written after them."""
    place: SnapshotPlace
    parts: str
    """JSON of :func:`parts_as_json`: the same text for many snapshots."""
    scalars: Mapping[str, Any]
    rng: RngState
    beside: Mapping[str, Any]

    def as_bytes(self) -> bytes:
        """What :func:`read_note` reads back."""
        whose = {"owner": vars(self.owner), "moment": vars(self.moment)}  # asdict would copy each number of generators
        text = json.dumps(vars(self) | whose | {"format": FORMAT}).encode()
        return digest_bytes(text).encode() + b"\n" + text

    def generators(self) -> HeldRng:
        """The random generators of that moment."""
        return HeldRng.from_json(self.rng)

    def division(self, device: torch.device) -> Division:
        """Who holds what of the snapshot.

        Args:
            device: where this process has what was on an accelerator.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is not as :meth:`as_bytes` writes it.
        """
        parts = tuple(_part(entry, device) for entry in json.loads(self.parts))
        return divide(parts, self.place, self.owner.world)


def read_note(path: Path) -> Note | None:
    """The note; None for one that is torn, changed, gone, or of another format."""
    try:
        return parse_note(path.read_bytes())
    except OSError:
        return None


def parse_note(content: bytes) -> Note | None:
    """What :meth:`Note.as_bytes` wrote; None for anything else."""
    digest, _, text = content.partition(b"\n")
    if digest != digest_bytes(text).encode():
        return None
    said = json_object(text)
    if said is None or said.pop("format", None) != FORMAT:
        return None
    try:
        owner, moment, place = Owner(**said.pop("owner")), Moment(**said.pop("moment")), said.pop("place")
        return Note(owner=owner, moment=moment, place=SnapshotPlace(place), **said)
    except (KeyError, TypeError, ValueError):
        return None


def parts_as_json(parts: Sequence[Part]) -> str:
    """The forms of a state's tensors."""
    return json.dumps(
        [asdict(part) | {"dtype": str(part.dtype).removeprefix("torch."), "device": part.device.type} for part in parts]
    )


def checksum(numbers: NDArray[np.uint8]) -> str:
    """A checksum at the speed of memory: blake3 over the sums of all 64-bit words of each block of 64 kB.

    Any change within one word of a block is noticed, and a block that was overwritten in part is but for one chance in
    2^64. It tells accidents, not forgers. Releases the interpreter's lock while it sums.
    """
    words = len(numbers) // 8
    blocks = words // _BLOCK_WORDS
    digest = blake3(len(numbers).to_bytes(8, "little"))
    whole = numbers[: blocks * _BLOCK_WORDS * 8]
    for at in range(0, len(whole), _PIECE_BYTES):
        piece = whole[at : at + _PIECE_BYTES].view(np.uint64).reshape(-1, _BLOCK_WORDS)
        digest.update(piece.sum(axis=1, dtype=np.uint64).tobytes())
    digest.update(numbers[len(whole) :].tobytes())
    return f"sums64-blake3:{digest.hexdigest()}"


def _part(entry: Mapping[str, Any], device: torch.device) -> Part:
    dtype = getattr(torch, entry["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{entry['dtype']} is no dtype")
    return Part(
        name=str(entry["name"]),
        dtype=dtype,
        shape=tuple(int(size) for size in entry["shape"]),
        stride=tuple(int(step) for step in entry["stride"]),
        dense=bool(entry["dense"]),
        device=torch.device("cpu") if entry["device"] == "cpu" else device,
        alike=bool(entry["alike"]),
    )
