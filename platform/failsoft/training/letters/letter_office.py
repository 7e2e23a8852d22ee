"""What a training loop calls when a batch dies: it gathers the circumstances, writes the letter, makes the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from failsoft.health.clock import Clock
from failsoft.training.guard import StepGuard, StepOutcome
from failsoft.training.letters.circumstances import Witness, model_digest
from failsoft.training.letters.deadletters import DeadLetters, LetterPolicy
from failsoft.training.letters.fingerprints import device_of
from failsoft.training.letters.letter import DeadLetter, letter_of, undone_letter
from failsoft.training.letters.letterbook import LETTERS_FOLDER, read_letter_book
from failsoft.training.letters.payloads import Payloads
from failsoft.training.letters.reproduction import Reproduction
from failsoft.training.ranks import Ranks, SoloRank


@dataclass(kw_only=True)
class LetterOffice:
    """The dead letters and reproduction records of one rank. Never ends the training: what is lost is counted and said.

    Costs nothing while nothing is refused. For a loop of one's own: hand :meth:`refused` to the guard's ``on_refused``.
    A late guard tells of a refusal one step late, when generators and buffers have moved on: use a policy without
    digest and generators there, else a replay would take another state for the one that the batch met.
    """

    run_folder: Path
    clock: Clock
    model: nn.Module
    """The bare model."""
    ranks: Ranks = field(default_factory=SoloRank)
    task: object = None
    """Asked for sources and payload where it knows them (``circumstances.KnowsSources``, ``KnowsPayload``)."""
    guard: object = None
    """Asked for the limit that a spike went above."""
    policy: LetterPolicy = field(default_factory=LetterPolicy)
    config_digest: str = ""
    seed: int | None = None
    shares_at: Callable[[int], tuple[int, ...] | None] = lambda _position: None
    """How the batch at a position is divided among the ranks, where slow ranks are relieved; None: evenly."""
    on_lost: Callable[[str], object] = lambda _why: None
    """Told the first time that the disk refuses, or that the task fails at what it is asked."""

    def __post_init__(self) -> None:
        """Nothing is opened or read yet."""
        folder, rank, policy = self.run_folder / LETTERS_FOLDER, self.ranks.rank, self.policy
        self._letters = DeadLetters(folder, rank=rank, policy=policy, on_lost=self._lost)
        payloads = Payloads(
            folder,
            rank=rank,
            max_count=policy.max_payloads,
            max_bytes=policy.max_payload_bytes,
            on_lost=self._lost,
        )
        self._witness = Witness(
            model=self.model,
            task=self.task,
            guard=self.guard,
            ranks=self.ranks,
            policy=policy,
            payloads=payloads,
            shares_at=lambda position: self.shares_at(position),  # noqa: PLW0108 -- the loop sets it later
            on_lost=self._lost,
        )
        self._reproduction = Reproduction(
            config_digest=self.config_digest,
            seed=self.seed,
            rank=rank,
            world=self.ranks.world,
            device=device_of(self.model),
        )

    @property
    def folder(self) -> Path:
        """Where the letters lie."""
        return self._letters.path.parent

    def resumed(self, position: int) -> None:
        """The run goes on from ``position``; every rank calls it at the start of an attempt."""
        self._letters.resumed(position, at_s=self.clock.wall_s())

    def refused(self, outcome: StepOutcome, *, step: int = 0) -> DeadLetter:
        """Write the letter of a refused step; called after the way back, before anything else moves.

        Args:
            outcome: the refused step; its sample ids are what the task is asked about.
            step: updates applied before it.
        """
        met = self._witness.of(outcome)
        letter = letter_of(outcome, step=step, at_s=self.clock.wall_s(), circumstances=met)
        self._letters.write(letter)
        return letter

    def undone(self, position: int, sample_ids: Sequence[int], *, step: int, undone_at: int) -> DeadLetter:
        """Write the letter of a batch whose update a rollback took back.

        Args:
            position: of the batch.
            sample_ids: this rank's share of it.
            step: updates applied, after the rollback.
            undone_at: the run's position when it rolled back.
        """
        letter = undone_letter(
            position,
            sample_ids,
            step=step,
            at_s=self.clock.wall_s(),
            undone_at=undone_at,
            circumstances=self._witness.of_undone(sample_ids),
        )
        self._letters.write(letter)
        return letter

    def again(self, position: int) -> None:
        """The batch is dead for good: the letter of its last pass, which :meth:`resumed` overtook, stands again."""
        book = read_letter_book(self.folder)
        for letter in (letter for letter in book.overtaken if letter.position == position):
            if letter.rank == self.ranks.rank:
                self._letters.write(letter)

    def event_data(self, letter: DeadLetter) -> dict[str, Any]:
        """The letter in brief and its reproduction record, as data of a ledger event."""
        record = self._reproduction.record(
            sample_ids=letter.sample_ids, model_digest=letter.model_digest, generators_digest=letter.generators_digest
        )
        return letter.in_brief() | {"reproduction": record}

    def record_of_state(self) -> dict[str, Any]:
        """The reproduction record of the state as it is now: after a rollback, or when it was found ill."""
        digest = model_digest(self.model, max_bytes=self.policy.max_digest_bytes)
        factor = self.guard.relief.factor if isinstance(self.guard, StepGuard) else None
        return self._reproduction.record(model_digest=digest) | {"rate_factor": factor}

    def _lost(self, why: str) -> None:
        self.on_lost(why)  # looked up late: the loop may set it after the office is made
