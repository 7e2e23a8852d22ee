"""All ranks leave, or save, after the same batch, though only one of them was told, and nothing is sent for it.

Ranks that save at different batches save nothing (Lightning#20806: a signal that reaches one rank between two steps
leaves the others in a collective for ever). So the word of each rank rides on the sums that the guarded step makes
anyway, as two numbers more (leave; save and go on): after each sum all ranks know the same.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import asdict

import torch

from failsoft.training.ranks import Hear, Ranks, gather_ahead
from failsoft.training.survival.notice import Notice
from failsoft.training.survival.saving_asked import Wish

_MAX_NUMBERS = 4096
"""Sums of more numbers than this carry nothing: copying them would cost more than it is worth."""


class NoticedRanks:
    """Ranks whose sums also carry whether any rank was told to leave. Stands in for the ranks it is made from."""

    def __init__(self, ranks: Ranks, notice: Notice) -> None:
        self._ranks = ranks
        self._notice = notice
        self._riders: torch.Tensor | None = None
        self._agreed = False
        self._wanted = False
        self.rank = ranks.rank
        self.world = ranks.world

    def sum_(self, values: torch.Tensor) -> torch.Tensor:
        """Sum ``values`` over all ranks in place, and return them; one collective, as without the rider."""
        if self.world == 1 or values.numel() > _MAX_NUMBERS:
            return self._ranks.sum_(values)
        told = values.new_full((1,), float(self._notice.heard is not None))
        asked = values.new_full((1,), float(bool(self._notice.wishes.open)))
        all_three = self._ranks.sum_(torch.cat([values.detach().reshape(-1), told, asked]))
        self._riders = all_three[-2:]
        return values.copy_(all_three[:-2].view_as(values))

    def gather(self, text: str) -> list[str]:
        """Everybody's text, by rank."""
        return self._ranks.gather(text)

    def gather_ahead(self, text: str) -> AbstractContextManager[Hear]:
        """Begin to gather everybody's text for the time of the block."""
        return gather_ahead(self._ranks, text)

    def broadcast_(self, values: torch.Tensor, source: int) -> torch.Tensor:
        """Give ``values`` the bytes that they have on rank ``source``."""
        return self._ranks.broadcast_(values, source)

    def asked(self) -> bool:
        """Whether this rank was told; others may not know yet."""
        return self._notice.heard is not None

    def told(self) -> str | None:
        """Why all ranks shall leave now, in this rank's words; None: go on. The same answer on all ranks, after a sum.

        No collective. On a device it reads two numbers, so it belongs behind a step that has read its own.
        """
        if self.world == 1:
            return None if self._notice.heard is None else self._notice.heard.why
        self._hear()
        if not self._agreed:
            return None
        return "another rank was told to leave" if self._notice.heard is None else self._notice.heard.why

    def wanted(self) -> list[Wish]:
        """See :class:`failsoft.training.ranks.MayBeAskedToSave`."""
        wishes = self._notice.wishes
        found = {wish.id: wish for wish in wishes.open}
        if self.world > 1:
            self._hear()
            if not self._wanted:
                return []
            self._wanted = False
            told = [
                json.loads(text) for text in self._ranks.gather(json.dumps([asdict(one) for one in found.values()]))
            ]
            found = {one["id"]: Wish(**one) for asked in told for one in asked}
        wishes.serve(found.values())
        return list(found.values())

    def _hear(self) -> None:
        if self._riders is not None:
            leave, save = self._riders.tolist()  # a NaN among their neighbours does not reach them
            self._agreed, self._wanted = self._agreed or leave != 0.0, self._wanted or save != 0.0
            self._riders = None
