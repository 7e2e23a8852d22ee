"""One dead batch as a case: what it is accused of, its samples rank by rank, and batches to compare it with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from failsoft.training.guard import Refusal
from failsoft.training.letters.circumstances import model_digest
from failsoft.training.letters.fingerprints import device_of, unpack_generators
from failsoft.training.letters.letter import DeadLetter
from failsoft.training.letters.letterbook import LetterBook
from failsoft.training.letters.rebuild import Rebuild
from failsoft.training.letters.rewalk import share_of
from failsoft.training.letters.trials import Limits, Share

Draw = Callable[[int], object]
"""Sets a rank's generators as the walk left them."""


@dataclass(kw_only=True)
class Case:
    """One global batch and its letters."""

    rebuild: Rebuild
    book: LetterBook
    letters: tuple[DeadLetter, ...]
    """Of this batch, by rank; at least one."""

    def __post_init__(self) -> None:
        """Look once at what the letters say."""
        self.first = self.letters[0]
        self.position, self.world = self.first.position, self.first.world
        self.accused = next((letter for letter in self.letters if letter.spike_limit is not None), self.first)
        self.whole = self.rebuild.indices(self.position)
        shares = self.first.shares
        self.divided = shares if shares is not None and len(shares) == self.world else None
        """The shares of the ranks, in sixteenths; None: even ones."""
        self._dead = {letter.position for letter in book_letters(self.book)}

    @property
    def alleged(self) -> bool:
        """Whether the run refused it, and did not only undo it with others."""
        return any(letter.refused for letter in self.letters)

    @property
    def overtaken(self) -> bool:
        """Whether the run met it again after a restart and did not refuse it then."""
        return any(letter in self.book.overtaken for letter in self.letters)

    @property
    def is_spike(self) -> bool:
        """Whether its numbers were finite, and only far too large."""
        return self.accused.spike_limit is not None

    @property
    def by_norm(self) -> bool:
        """Whether the gradient norm was what was too large."""
        return self.accused.reason == Refusal.GRADIENT_SPIKE

    def limits(self) -> Limits:
        """What the run held against it, beside numbers that are not finite."""
        limit = math.inf if self.accused.spike_limit is None else self.accused.spike_limit
        return Limits(grad_norm=limit) if self.by_norm else Limits(loss=limit)

    def met(self, model: nn.Module) -> bool | None:
        """Whether this is the model that it met, bit for bit; None when no letter has its digest."""
        wanted = next((letter.model_digest for letter in self.letters if letter.model_digest is not None), None)
        return None if wanted is None else model_digest(model) == wanted

    def draws_met(self, model: nn.Module) -> bool:
        """Whether each rank's generators are known, and of the kind of device that the model is on."""
        on_cuda = device_of(model).type == "cuda"
        known = [letter.generators is not None and ("cuda" in letter.generators) == on_cuda for letter in self.letters]
        return len(known) == self.world and all(known)

    def shares(self, device: torch.device, walked: Draw = lambda _rank: None) -> list[Share]:
        """The batch rank by rank, with the random draws of the letters, else those of the walk."""
        return [self._share(rank, device, walked) for rank in range(self.world)]

    def peers(self, count: int) -> list[list[Share]]:
        """Batches near the dead one that left no letter: before it, else after it."""
        before = range(self.position - 1, -1, -1)
        after = range(self.position + 1, self.position + 1 + 8 * count)
        healthy = [position for position in (*before[: 8 * count], *after) if position not in self._dead]
        return [[Share(indices=self.rebuild.indices(position))] for position in healthy[:count]]

    def _share(self, rank: int, device: torch.device, walked: Draw) -> Share:
        samples, weight = share_of(self.whole, rank, self.world, self.divided)
        packed = next((letter.generators for letter in self.letters if letter.rank == rank), None)

        def draw() -> None:
            if packed is None:
                walked(rank)
            else:
                unpack_generators(packed, device)

        return Share(indices=samples, weight=weight / self.world, draw=draw)


def book_letters(book: LetterBook) -> tuple[DeadLetter, ...]:
    """All letters of a book, overtaken ones included."""
    return (*book.letters, *book.overtaken)
