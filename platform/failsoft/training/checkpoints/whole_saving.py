"""How the ranks of a state that all hold alike hand a checkpoint over: rank 0's writer writes it for all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from failsoft.training.checkpoints.content import small_part
from failsoft.training.checkpoints.writer import CheckpointWriter
from failsoft.training.checkpoints.writer_news import Ticket
from failsoft.training.checkpoints.writer_slot import unnamed
from failsoft.training.ranks import Ranks
from failsoft.training.rng import capture_rng
from failsoft.training.state import FlatState
from failsoft.training.together import begun


@dataclass(frozen=True, kw_only=True)
class WholeSaving:
    """One rank's side of it."""

    writer: CheckpointWriter
    ranks: Ranks
    identity: Mapping[str, Any]

    def submit(self, flat: FlatState, ticket: Ticket, *, refused: str | None) -> None:
        """Hand the state to rank 0's writer. All ranks call it together.

        Args:
            flat: this rank's state.
            ticket: of the moment.
            refused: why nothing may be published now; rank 0's word counts.

        Raises:
            ConfigError: on all ranks: it holds what can't be saved, or one of them can't take part.
        """
        with begun(self.ranks, {"rng": json.dumps(capture_rng()), "problem": unnamed(flat.tensors)}) as hear:
            told = hear()
        if self.ranks.rank != 0:
            return
        if refused is None:
            scalars = small_part(flat, self.identity, [one["rng"] for one in told])
            self.writer.offer(ticket, flat.tensors, scalars)
        else:
            self.writer.fail(ticket, refused)

    def prepare(self, flat: FlatState) -> None:
        """Make the memory and start the writer ahead of time, on rank 0. Not a collective."""
        if self.ranks.rank == 0 and not unnamed(flat.tensors):
            self.writer.prepare(flat.tensors, scalars_bytes=len(small_part(flat, self.identity, [])))
