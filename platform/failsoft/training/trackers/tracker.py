"""What a tracker is told of a run, and where trackers are."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from failsoft.errors import ConfigError


class Kind(StrEnum):
    """A tracker that failsoft can write to; the value begins its address."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"


_LIBRARY = {Kind.TENSORBOARD: "tensorboardX", Kind.MLFLOW: "mlflow", Kind.WANDB: "wandb"}
_EXAMPLE = {
    Kind.TENSORBOARD: "tensorboard:/mnt/boards",
    Kind.MLFLOW: "mlflow:http://127.0.0.1:5000",
    Kind.WANDB: "wandb:my-project",
}


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a tracker is: ``tensorboard:FOLDER``, ``mlflow:URI`` or ``wandb:PROJECT``."""

    kind: Kind
    place: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read one.

        Raises:
            ConfigError: it is none.
        """
        kind, _, place = text.partition(":")
        if kind not in list(Kind) or not place:
            raise ConfigError(f"{text!r} names no tracker; use {', '.join(_EXAMPLE.values())}")
        return cls(kind=Kind(kind), place=place)

    def refuse_unless_installed(self) -> None:
        """Said before a run begins, where its driver is.

        Raises:
            ConfigError: the library that writes there is not installed; with the command that installs it.
        """
        library = _LIBRARY[self.kind]
        if importlib.util.find_spec(library) is None:
            raise ConfigError(f"the tracker {self.kind} needs {library}; run: pip install 'failsoft[{self.kind}]'")

    def __str__(self) -> str:
        """As it was written."""
        return f"{self.kind}:{self.place}"


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a tracker is told of a run when it begins, and when it is picked up again."""

    run: str
    """Its name."""
    identity: str
    """The same whenever this run goes on, and of no other one: letters, digits and dashes."""
    folder: Path
    """For files of the tracker's own."""
    config: Mapping[str, str]
    """What was asked for, by the names of the settings."""


class Ending(StrEnum):
    """How a tracker is left."""

    FINISHED = "finished"
    STOPPED = "stopped"
    """With a diagnosis."""
    AWAY = "away"
    """Nothing is known: the run was told to leave, or another driver goes on with it."""


class Tracker(Protocol):
    """A place for curves. Called from one thread of its own, and may raise whatever it likes, or not come back."""

    def begin(self, run: RunFacts) -> None:
        """A run begins or goes on; called again after a failure."""
        ...

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Metrics by the names of failsoft's metric table, after so many applied updates; also of steps before."""
        ...

    def happened(self, step: int, kind: str, why: str) -> None:
        """An event of the run, such as ``batch_refused`` or ``rolled_back``, and why."""
        ...

    def end(self, ending: Ending) -> None:
        """Nothing more comes."""
        ...
