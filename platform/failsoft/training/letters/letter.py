"""One dead letter: what is known of a batch that training refused or undid, in small JSON. Free of torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from failsoft.errors import ConfigError

if TYPE_CHECKING:
    from failsoft.training.guard import StepOutcome

UNDONE = "undone by a rollback"
"""Reason of a batch whose update was applied and taken back; nothing is said against its data."""
MAX_IDS = 4096
"""Sample ids that a letter names at most."""
_MAX_SOURCES = 64


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What a batch met, beside the step's own numbers; taken after the way back, when all is as it was before it.

    :func:`failsoft.training.letters.circumstances.circumstances_of` makes one.
    """

    rank: int = 0
    world: int = 1
    sources: Mapping[str, int] = field(default_factory=dict)
    """Samples of the share by where they came from: shard, file."""
    spike_limit: float | None = None
    model_digest: str | None = None
    generators: Mapping[str, str] | None = None
    generators_digest: str | None = None
    payload: str | None = None
    threads: int | None = None
    shares: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """One rank's share of a batch that left no trace in the weights."""

    position: int
    step: int
    """Updates applied before it."""
    rank: int
    reason: str
    sample_ids: tuple[int, ...]
    """At most 4096; the rest follows from the position and the run's seed."""
    loss: float | None = None
    """None when not finite (JSON has no NaN) or not known; the reason tells."""
    grad_norm: float | None = None
    bad_tensor: str | None = None
    at_s: float = 0.0
    """Wall time."""
    world: int = 1
    """Ranks that shared the batch."""
    sample_count: int | None = None
    """Samples of this rank's share; more than ``sample_ids`` when those are cut. None in letters of failsoft 0.1."""
    mean_loss: float | None = None
    """Mean over the ranks."""
    why: str = ""
    """What a spike was measured against, in words."""
    spike_limit: float | None = None
    """The number that a spike went above."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """Samples of the share by shard or file, where known."""
    model_digest: str | None = None
    """Of the model's tensors that it met; None when not taken."""
    generators: Mapping[str, str] | None = None
    """torch's generators before the batch, packed."""
    generators_digest: str | None = None
    payload: str | None = None
    """Name of a file with the raw input tensors, beside the letters."""
    threads: int | None = None
    """Threads of torch in that process: sums are made in another order, and end in other bits, with more or fewer."""
    shares: tuple[int, ...] | None = None
    """How the batch was divided among the ranks, in sixteenths of a full share by rank; None: evenly."""
    undone_at: int | None = None
    """The position at which a rollback took the batch's update back; None for refused batches."""

    @property
    def refused(self) -> bool:
        """Whether the batch was refused, and not only undone with others."""
        return self.reason != UNDONE

    def in_brief(self) -> dict[str, Any]:
        """The letter as small data of a ledger event: no generators, 16 sample ids, the largest 8 sources."""
        left_out = {"at_s", "generators", "generators_digest", "model_digest", "payload", "threads", "why", "undone_at"}
        said = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in left_out}
        said |= {"sample_ids": list(self.sample_ids[:16]), "sources": dict(list(self.sources.items())[:8])}
        return said | ({"limit": self.why} if self.why else {})


def letter_of(
    outcome: StepOutcome, *, step: int, at_s: float, circumstances: Circumstances | None = None
) -> DeadLetter:
    """The letter of a refused step.

    Args:
        outcome: the step.
        step: updates applied before it.
        at_s: wall time.
        circumstances: what it met, where known.

    Raises:
        ConfigError: the step was applied; such a batch is not dead.
    """
    if outcome.refusal is None:
        raise ConfigError(
            f"the step at position {outcome.position} was applied; only refused steps leave a dead letter"
        )
    return DeadLetter(
        position=outcome.position,
        step=step,
        rank=outcome.rank,
        reason=outcome.refusal,
        sample_ids=outcome.sample_ids[:MAX_IDS],
        loss=_finite(outcome.loss),
        grad_norm=_finite(outcome.grad_norm),
        bad_tensor=outcome.bad_tensor,
        at_s=at_s,
        sample_count=len(outcome.sample_ids),
        mean_loss=_finite(outcome.mean_loss),
        why=outcome.why,
        **_said_of(circumstances or Circumstances()),
    )


def undone_letter(
    position: int,
    sample_ids: Sequence[int],
    *,
    step: int,
    at_s: float,
    undone_at: int,
    circumstances: Circumstances | None = None,
) -> DeadLetter:
    """The letter of a batch whose update a rollback took back.

    Args:
        position: of the batch.
        sample_ids: this rank's share.
        step: updates applied, after the rollback.
        at_s: wall time.
        undone_at: the run's position when it rolled back.
        circumstances: rank, world and sources; the state that the batch met is gone by now.
    """
    met = circumstances or Circumstances()
    return DeadLetter(
        position=position,
        step=step,
        rank=met.rank,
        reason=UNDONE,
        sample_ids=tuple(map(int, sample_ids[:MAX_IDS])),
        at_s=at_s,
        sample_count=len(sample_ids),
        undone_at=undone_at,
        **_said_of(met),
    )


def _said_of(circumstances: Circumstances) -> dict[str, Any]:
    names = [name for name in circumstances.__dataclass_fields__ if name != "rank"]
    said = {name: getattr(circumstances, name) for name in names}
    most = sorted(circumstances.sources.items(), key=lambda entry: (-entry[1], entry[0]))[:_MAX_SOURCES]
    return said | {"sources": dict(most)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
