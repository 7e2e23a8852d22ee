"""What RAM snapshots take and may take, in a form for people; and whether all ranks of a machine fit into its RAM."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from failsoft.training.snapshots.snapshot_layout import Division, Part, divide, pinned, placed, taken_bytes
from failsoft.training.snapshots.snapshot_place import SnapshotPlace

BUFFERS = 2
"""The one that stands, and the one that is being filled."""


@dataclass(frozen=True, kw_only=True)
class SnapshotMemory:
    """RAM of one rank's snapshots."""

    place: SnapshotPlace
    rank: int
    world: int
    held_bytes: int
    """Taken now."""
    most_bytes: int
    """Taken once both buffers are there, as the state is now; moments that appear later add to it."""
    most_bytes_by_place: Mapping[SnapshotPlace, int]
    """What this rank would take at most in each mode."""
    pinned_bytes: int
    """Of those held: pinned for copies from CUDA. Torch takes a power of two for each buffer."""
    available_bytes: int | None
    """RAM that this process may still take now; None where the system does not say."""
    outliving_bytes: int = 0
    """Of those held: in memory of the host, where they outlive this process."""

    @property
    def share_of_available(self) -> float | None:
        """What is still to be taken, as a fraction of the RAM available; None where that isn't known."""
        if self.available_bytes is None:
            return None
        return (self.most_bytes - self.held_bytes) / max(1, self.available_bytes)

    def __str__(self) -> str:
        """One sentence."""
        share = self.share_of_available
        of_free = "RAM available unknown" if share is None else f"{share:.1%} of the RAM available is still to be taken"
        pinned = f", {in_gb(self.pinned_bytes)} of it pinned" if self.pinned_bytes else ""
        if self.outliving_bytes:
            pinned += f", {in_gb(self.outliving_bytes)} of it outlives the worker"
        return (
            f"RAM snapshots ({self.place}) of rank {self.rank} of {self.world}: {in_gb(self.held_bytes)} held{pinned}, "
            f"at most {in_gb(self.most_bytes)}; {of_free}"
        )

    def as_dict(self) -> dict[str, Any]:
        """For the ledger."""
        return asdict(self) | {"share_of_available": self.share_of_available}


@dataclass(frozen=True, kw_only=True)
class RankNote:
    """What each rank tells the others before a snapshot."""

    rank: int
    host: str
    digest: str
    """Of what all ranks should hold alike; "" where nothing needs to be alike."""
    needed_bytes: int = 0
    """Still to be taken until both buffers are there."""
    available_bytes: int | None = None
    """On this rank's machine; None when it needs none, or does not know."""
    problem: str = ""
    """Why it can't take part; "" when it can."""

    def to_json(self) -> str:
        """For the others."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RankNote:
        """From another."""
        return cls(**json.loads(text))


def objection(notes: Sequence[RankNote], *, max_ram_fraction: float) -> str | None:
    """Why no rank may take a snapshot; None when all may. Pure: the same answer on every rank.

    Args:
        notes: of all ranks.
        max_ram_fraction: of a machine's available RAM that its ranks may take together.
    """
    problems = [f"rank {note.rank}: {note.problem}" if len(notes) > 1 else note.problem for note in notes]
    if any(note.problem for note in notes):
        return "; ".join(text for text, note in zip(problems, notes, strict=True) if note.problem)
    strangers = [note.rank for note in notes if note.digest != notes[0].digest]
    if strangers:
        return (
            f"ranks {strangers} differ from rank 0 ({notes[strangers[0]].digest} / {notes[0].digest}), so they can't "
            "share a snapshot; keep all on each with SnapshotPolicy(where=SnapshotPlace.EACH_RANK)"
        )
    by_host: dict[str, list[RankNote]] = defaultdict(list)
    for note in notes:
        by_host[note.host].append(note)
    return next((text for group in by_host.values() if (text := _too_much(group, max_ram_fraction))), None)


def most_bytes(division: Division, rank: int) -> int:
    """Both buffers of a rank."""
    slices = division.kept_by(rank)
    _, total = placed(slices)
    return BUFFERS * taken_bytes(total, pinned=pinned(slices))


def most_bytes_by_place(parts: Sequence[Part], rank: int, world: int) -> dict[SnapshotPlace, int]:
    """Both buffers of a rank, in each mode."""
    return {place: most_bytes(divide(parts, place, world), rank) for place in SnapshotPlace}


def in_gb(size_bytes: float) -> str:
    """Bytes for people."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(size_bytes) >= size:
            return f"{size_bytes / size:.3g} {unit}"
    return f"{size_bytes:.0f} bytes"


def _too_much(notes: Sequence[RankNote], max_ram_fraction: float) -> str | None:
    needed = sum(note.needed_bytes for note in notes)
    known = [note.available_bytes for note in notes if note.available_bytes is not None]
    if not known or needed <= max_ram_fraction * min(known):
        return None
    return (
        f"the RAM snapshots need {needed} bytes ({in_gb(needed)}) more for the two buffers of {len(notes)} rank(s) on "
        f"{notes[0].host}, and may take {max_ram_fraction:.0%} of the {min(known)} bytes ({in_gb(min(known))}) "
        "available there; keep the state once per run with SnapshotPolicy(where=SnapshotPlace.RANK_ZERO) or in equal "
        "shares with SHARDED, start fewer ranks per machine, or give it more memory (a longer interval between "
        "snapshots takes just as much)"
    )
