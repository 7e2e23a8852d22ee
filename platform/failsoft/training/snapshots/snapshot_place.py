"""The modes of RAM snapshots, by name; loads no torch, so that a job's settings can name one."""

from __future__ import annotations

from enum import StrEnum


class SnapshotPlace(StrEnum):
    """Where the numbers are kept that are the same on all ranks; what is a rank's own, it always keeps itself."""

    EACH_RANK = "each_rank"
    """Every rank keeps everything. A rollback needs no other rank's data."""
    RANK_ZERO = "rank_zero"
    """Rank 0 keeps them; a rollback broadcasts them."""
    SHARDED = "sharded"
    """Each rank keeps an equal share of the bytes; in a rollback each broadcasts its share."""
