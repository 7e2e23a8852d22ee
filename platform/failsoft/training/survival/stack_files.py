"""The files in which workers leave their stacks: one for each rank, empty while all is well, set aside once told of."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from failsoft.health.clock import Clock

HANGS_FOLDER = "hangs"


@dataclass(frozen=True, kw_only=True)
class StackFiles:
    """Those of one run."""

    folder: Path
    clock: Clock

    def path_of(self, rank: int) -> Path:
        """Where a rank leaves them."""
        return self.folder / f"rank-{rank}.txt"

    def text_of(self, rank: int) -> str:
        """What a rank has left; "" while that is nothing."""
        try:
            return self.path_of(rank).read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def set_aside(self, rank: int) -> Path:
        """Keep what a rank has left under another name, which nobody writes over; returns that."""
        path = self.path_of(rank)
        kept = path.with_name(f"rank-{rank}-{self.clock.wall_s():.3f}.txt")
        with suppress(FileNotFoundError):  # another rank has told of it meanwhile
            path.replace(kept)
        return kept
