"""Faults of a drill as data: what breaks, in which phase, where in it. The same data breaks the same thing again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from failsoft.errors import ConfigError
from failsoft.health.json_object import is_finite, json_value


class Side(StrEnum):
    """What a drill is pointed at."""

    TRAINING = "training"
    SERVING = "serving"


class Phase(StrEnum):
    """What the subject is doing when the fault strikes."""

    START = "start"
    """Before the first step, or the first answer."""
    FIRST_STEP = "first-step"
    """Training: the first update, before anything was ever saved."""
    TRAINING = "training"
    """Training: in the middle of it, after something was saved."""
    SAVING = "saving"
    """Training: while a checkpoint is being written."""
    VALIDATION = "validation"
    """Training: while the model is only looked at."""
    LOAD = "load"
    """Serving: steady requests, everything healthy."""
    ROLLOUT = "rollout"
    """Serving: while a release gets its share of the traffic."""
    FALLBACK = "fallback"
    """Serving: while something else than the model answers, or the way back is being tried."""


class DrillFault(StrEnum):
    """What breaks. What each of them does is said in :mod:`failsoft.drills.catalogue`."""

    NAN = "nan"
    INF = "inf"
    SPIKE = "spike"
    POISONED_SAMPLE = "poisoned-sample"
    OUT_OF_MEMORY = "oom"
    HANG = "hang"
    KILL_WORKER = "kill-worker"
    KILL_DRIVER = "kill-driver"
    SIGTERM = "sigterm"
    DRAIN = "drain"
    TORN_CHECKPOINT = "torn-checkpoint"
    FLIPPED_CHECKPOINT = "flipped-checkpoint"
    MISSING_CHECKPOINT = "missing-checkpoint"
    FULL_DISK = "full-disk"
    SLOW_DISK = "slow-disk"
    READ_ONLY_DISK = "read-only-disk"
    CLOCK_JUMP = "clock-jump"
    KILL_REPLICA = "kill-replica"
    KILL_GATEWAY = "kill-gateway"
    KILL_CONTROLLER = "kill-controller"
    KILL_HEAD = "kill-head"
    PARTITION = "partition"
    SLOW_MODEL = "slow-model"
    GARBAGE_MODEL = "garbage-model"
    HALF_ALIVE_REPLICA = "half-alive-replica"
    OVERLOAD = "overload"
    MALFORMED_WAVE = "malformed-wave"
    CORRUPT_BUNDLE = "corrupt-bundle"


Argument = float | str
"""What a fault is told beside its place: a size, a duration, a name."""


@dataclass(frozen=True, kw_only=True)
class PlannedFault:
    """One fault, planned: what, when, and how large."""

    kind: DrillFault
    phase: Phase
    at: float = 0.5
    """Where in the phase: 0.0 is its beginning, 1.0 its end. The subject knows how many steps or seconds that is."""
    seed: int = 0
    """Of whatever the fault chooses by chance: which byte, which replica."""
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    """By name; one that the kind does not know is refused by the subject."""

    def __post_init__(self) -> None:
        """Refuse a fault that could never strike."""
        if not 0.0 <= self.at <= 1.0:
            raise ConfigError(f"fault {self.kind}: at is {self.at}; give a part of its phase, from 0.0 to 1.0")
        if self.seed < 0:
            raise ConfigError(f"fault {self.kind}: seed is {self.seed}; use 0 or more")
        wrong = [name for name, value in self.arguments.items() if not isinstance(value, str) and not is_finite(value)]
        if wrong:
            raise ConfigError(f"fault {self.kind}: {wrong[0]} is {self.arguments[wrong[0]]!r}; use a number or a text")
        object.__setattr__(self, "arguments", MappingProxyType(dict(self.arguments)))

    def __hash__(self) -> int:
        """Equal faults hash equally, also with arguments."""
        return hash((self.kind, self.phase, self.at, self.seed, tuple(sorted(self.arguments))))

    def __str__(self) -> str:
        """For people: ``sigterm in training``."""
        return f"{self.kind} in {self.phase}"

    def number(self, name: str, default: float) -> float:
        """An argument that is a number.

        Raises:
            ConfigError: it is a text.
        """
        value = self.arguments.get(name, default)
        if isinstance(value, str):
            raise ConfigError(f"fault {self.kind}: {name} is {value!r}; use a number")
        return value

    def as_json(self) -> dict[str, Any]:
        """What :meth:`from_json` reads back."""
        return {
            "kind": str(self.kind),
            "phase": str(self.phase),
            "at": self.at,
            "seed": self.seed,
            "arguments": dict(self.arguments),
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> PlannedFault:
        """One planned fault.

        Raises:
            ConfigError: it names an unknown kind, phase or field, or a value that none can be.
        """
        unknown = set(entry) - {one.name for one in fields(cls)}
        if unknown:
            raise ConfigError(f"fault {dict(entry)} has unknown fields {sorted(unknown)}")
        try:
            return cls(
                kind=DrillFault(entry["kind"]),
                phase=Phase(entry["phase"]),
                at=float(entry.get("at", 0.5)),
                seed=int(entry.get("seed", 0)),
                arguments=dict(entry.get("arguments", {})),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"not a planned fault: {dict(entry)} ({error}); kinds: {', '.join(DrillFault)}; "
                f"phases: {', '.join(Phase)}"
            ) from error


def to_text(faults: tuple[PlannedFault, ...]) -> str:
    """Faults as JSON text."""
    return json.dumps([fault.as_json() for fault in faults])


def from_text(text: str) -> tuple[PlannedFault, ...]:
    """Faults from the text of :func:`to_text`.

    Raises:
        ConfigError: the text is no JSON list of planned faults.
    """
    try:
        entries = json_value(text)
    except ValueError as error:
        raise ConfigError(f"no planned faults: {error}; give a JSON list of them") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError("no planned faults: give a JSON list of objects with kind and phase")
    return tuple(PlannedFault.from_json(entry) for entry in entries)
