"""What may be done about too little memory, in order, and how far each of it goes.

A ladder is a sequence of *notches*, from full size down. A notch keeps all that the ones above it brought, so its
:class:`Setting` says everything that holds there. Some rungs have several notches: micro-batches are halved again and
again until each holds one sample. Rungs that a run does not have (no task that shrinks, no device beside the host) are
left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from failsoft.errors import ConfigError


class Rung(StrEnum):
    """One kind of relief."""

    FULL_SIZE = "full size"
    CACHES = "caches freed"
    """What only waits to be used again is given back, and the batch tried as it was."""
    MICRO_BATCHES = "micro-batches"
    """The same batch in several passes whose gradients add up: the same gradient, less of it in memory at a time."""
    INPUT_CAP = "capped input"
    """Shorter sequences or a lower resolution, as the task says; changes what is learnt from."""
    OFFLOAD = "optimizer state in host RAM"
    """The optimizer's moments stay in host RAM but for the time of the update; the update is the same to the bit."""
    SMALLER_UPDATES = "smaller updates"
    """One update for each micro-batch, at its share of the learning rate (the linear rule of Goyal et al., arXiv
    1706.02677): no gradients lie in memory while the next forward pass runs, which frees as much as the weights take.
    """
    BATCH_GIVEN_UP = "batch given up"
    """The batch is refused with a dead letter; the notch above holds again for the next one."""


ORDER = tuple(rung for rung in Rung if rung is not Rung.FULL_SIZE)
LOSSLESS = frozenset({Rung.CACHES, Rung.MICRO_BATCHES, Rung.OFFLOAD})
"""Rungs that leave the gradient what it is; only these are taken before anything failed. (Micro-batches are not among
them for a model with batch norm.)"""


@dataclass(frozen=True, kw_only=True)
class MemoryPolicy:
    """Which rungs, how far, when back, and what counts as pressure."""

    rungs: tuple[Rung, ...] = ORDER
    """From first to last; one that is left out is never taken. Without any, running out of memory ends the worker."""
    max_micro_batches: int = 1024
    """A share is never cut into more pieces."""
    climb_after_steps: int = 200
    """Applied updates without trouble until one notch is climbed back."""
    patience_factor: float = 3.0
    """After a relapse (trouble again before that many updates passed) the wait is so many times longer."""
    max_climb_after_steps: int = 20_000
    """No wait is longer."""
    look_every_batches: int = 50
    """Batches between two looks at the pressure; the ranks agree on it by one tiny reduction."""
    look_every_s: float = 1.0
    """A rank does not read its pressure more often."""
    max_host_used_fraction: float | None = None
    """Host RAM, or this process's control group, may be used up to this share of it; None: 3 % below the share at which
    Ray's memory monitor kills workers (``RAY_memory_usage_threshold``, 0.95 when unset)."""
    min_device_free_fraction: float = 0.02
    """So much of the device's memory must be left at the peak between two looks."""

    def __post_init__(self) -> None:
        """Refuse ladders that can't be climbed."""
        if len(set(self.rungs)) != len(self.rungs) or Rung.FULL_SIZE in self.rungs:
            raise ConfigError(f"rungs are {list(map(str, self.rungs))}; name each once, without {Rung.FULL_SIZE!s}")
        if Rung.BATCH_GIVEN_UP in self.rungs[:-1]:
            raise ConfigError(f"{Rung.BATCH_GIVEN_UP!s} is not the last of the rungs; nothing can be tried after it")
        self._refuse_numbers()

    def _refuse_numbers(self) -> None:
        for name in ("max_micro_batches", "climb_after_steps", "max_climb_after_steps", "look_every_batches"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more")
        if not self.look_every_s >= 0.0:
            raise ConfigError(f"look_every_s is {self.look_every_s}; use 0 s or longer")
        if not self.patience_factor >= 1.0:
            raise ConfigError(f"patience_factor is {self.patience_factor}; waits must not shrink, use 1.0 or more")
        if self.max_host_used_fraction is not None and not 0.0 < self.max_host_used_fraction <= 1.0:
            raise ConfigError(f"max_host_used_fraction is {self.max_host_used_fraction}; use a share up to 1, or None")
        if not 0.0 <= self.min_device_free_fraction < 1.0:
            raise ConfigError(f"min_device_free_fraction is {self.min_device_free_fraction}; use a share below 1")


@dataclass(frozen=True, kw_only=True)
class Means:
    """What a run has to be relieved by; the same on all ranks, since all must see the same ladder."""

    largest_share: int
    """Samples of one rank in a full batch."""
    least_piece: int = 1
    """Samples that a pass needs; 2 where batch norm has no variance of one."""
    uncut: str = ""
    """Why a batch can't be cut into pieces; empty: it can."""
    cap_levels: int = 0
    """How often the task can shrink its input."""
    can_offload: bool = False
    """Whether the optimizer's state lies on a device of its own memory."""

    @property
    def most_pieces(self) -> int:
        """That a full share can be cut into."""
        return max(1, self.largest_share // self.least_piece)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """All that holds on a notch."""

    micro_batches: int = 1
    """Pieces of a rank's share of a full batch."""
    cap_level: int = 0
    offloaded: bool = False
    updates: int = 1
    """Updates that one global batch is spread over."""


@dataclass(frozen=True, kw_only=True)
class Notch:
    """One place on the ladder."""

    rung: Rung
    setting: Setting = field(default_factory=Setting)

    def in_words(self) -> str:
        """Like "micro-batches, 4 a batch"."""
        setting = self.setting
        how = {
            Rung.MICRO_BATCHES: f", {setting.micro_batches} a batch",
            Rung.INPUT_CAP: f", level {setting.cap_level}",
            Rung.SMALLER_UPDATES: f", {setting.updates} a batch",
        }
        return f"{self.rung}{how.get(self.rung, '')}"


def notches(policy: MemoryPolicy, means: Means) -> tuple[Notch, ...]:
    """The whole ladder, from full size down."""
    means = replace(means, largest_share=1) if means.uncut else means
    ladder = [Notch(rung=Rung.FULL_SIZE)]
    for rung in policy.rungs:
        for setting in _deeper(rung, ladder[-1].setting, policy, means):
            ladder.append(Notch(rung=rung, setting=setting))
    return tuple(ladder)


def left_out(policy: MemoryPolicy, means: Means) -> dict[str, str]:
    """Rungs of the policy that this run does not have, and why."""
    there = {notch.rung for notch in notches(policy, means)}
    why = {
        Rung.MICRO_BATCHES: means.uncut
        or f"a rank's share of the batch is {means.largest_share} samples, of which a pass needs {means.least_piece}",
        Rung.INPUT_CAP: "the task does not say how to shrink its input",
        Rung.OFFLOAD: "the optimizer's state lies in host RAM already",
        Rung.SMALLER_UPDATES: means.uncut or "there is nothing to divide",
    }
    return {str(rung): why[rung] for rung in policy.rungs if rung not in there}


def _deeper(rung: Rung, now: Setting, policy: MemoryPolicy, means: Means) -> Iterator[Setting]:
    if rung is Rung.MICRO_BATCHES:
        for count in _doubled(min(policy.max_micro_batches, means.most_pieces)):
            yield replace(now, micro_batches=count)
    elif rung is Rung.INPUT_CAP:
        for level in range(1, means.cap_levels + 1):
            yield replace(now, cap_level=level)
    elif rung is Rung.OFFLOAD:
        if means.can_offload:
            yield replace(now, offloaded=True)
    elif rung is Rung.SMALLER_UPDATES:
        yield from _updates(now, means)
    else:
        yield now


def _updates(now: Setting, means: Means) -> Iterator[Setting]:
    """As many as micro-batches; fewer would save nothing, for their gradients would wait in memory all the same."""
    if now.micro_batches > 1:
        yield replace(now, updates=now.micro_batches)
        return
    for count in _doubled(means.most_pieces):
        yield replace(now, updates=count)


def _doubled(most: int) -> Iterator[int]:
    """2, 4, 8 and so on, and at last as many as there may be."""
    count = 2
    while count < most:
        yield count
        count *= 2
    if most > 1:
        yield most
