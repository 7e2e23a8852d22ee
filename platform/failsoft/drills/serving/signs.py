"""Files that tell the processes of a drilled app what to do wrong, and in which they say that they did."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from failsoft.health.json_object import is_finite, json_object

FOLDER_VARIABLE = "FAILSOFT_DRILL_SIGNS"
"""Environment variable that names the folder to the app's processes."""


class Sign(StrEnum):
    """What a process does wrong while the file of this name is there."""

    SLOW = "slow"
    """Each call of the model takes ``amount`` seconds longer, one call after the other."""
    GARBAGE = "garbage"
    """What the model returns is of the right form and makes no sense."""
    CLOCK = "clock"
    """The wall clock is ``amount`` seconds off, in each of the app's Python processes."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What stands in one file."""

    amount: float = 0.0
    """Seconds; its meaning is the sign's."""
    deployments: tuple[str, ...] = ()
    """Whom it concerns; none: everybody."""

    def concerns(self, deployment: str) -> bool:
        """Whether this deployment is meant."""
        return not self.deployments or deployment in self.deployments


class Signs:
    """The folder. Written by the drill, read by the app's processes.

    Args:
        folder: there already.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def raise_(self, sign: Sign, told: Told) -> None:
        """From now on; whole or not at all, for readers look at any moment."""
        aside = self.folder / f".{sign}.new"
        aside.write_text(json.dumps({"amount": told.amount, "deployments": list(told.deployments)}), "utf-8")
        aside.replace(self.folder / sign)

    def lower(self, sign: Sign) -> None:
        """No more."""
        (self.folder / sign).unlink(missing_ok=True)

    def read(self) -> Mapping[Sign, Told]:
        """What is told now; a file that can't be read tells nothing."""
        found = {sign: self._told(sign) for sign in Sign}
        return {sign: told for sign, told in found.items() if told is not None}

    def say_struck(self, sign: Sign) -> None:
        """By a process that just did it wrong."""
        (self.folder / f"struck-{sign}-{os.getpid()}").touch()

    def struck(self, sign: Sign) -> int:
        """Processes that did."""
        return len(list(self.folder.glob(f"struck-{sign}-*")))

    def forget(self, sign: Sign) -> None:
        """Who did it before: for the next fault. A process says it again under the next sign."""
        for entry in self.folder.glob(f"struck-{sign}-*"):
            entry.unlink(missing_ok=True)

    def _told(self, sign: Sign) -> Told | None:
        try:
            body: dict[str, Any] | None = json_object((self.folder / sign).read_bytes())
        except OSError:
            return None
        if body is None or not is_finite(body.get("amount")):
            return None
        return Told(amount=float(body["amount"]), deployments=tuple(map(str, body.get("deployments", ()))))
