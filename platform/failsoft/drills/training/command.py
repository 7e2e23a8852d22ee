"""What the user types to train, and where it runs."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from failsoft.errors import ConfigError

RUN_PLACE = "{run}"
"""In an argument: the folder of this trial's run."""


@dataclass(frozen=True, kw_only=True)
class TrainCommand:
    """A Python script, a module, or any other command that ends in Python processes."""

    script: Path | None = None
    module: str | None = None
    program: tuple[str, ...] = ()
    """Of another command, such as torchrun: its words, without ``arguments``."""
    arguments: tuple[str, ...] = ()
    """``{run}`` in them becomes the folder of the trial's run."""
    folder: Path | None = None
    """Working directory; None: the folder of the trial's run, so that nothing of one trial is found by the next."""

    def __post_init__(self) -> None:
        """Refuse what names nothing, or more than one thing, to run.

        Raises:
            ConfigError: not exactly one of script, module and program; or it is not there.
        """
        if sum((self.script is not None, self.module is not None, bool(self.program))) != 1:
            raise ConfigError("a train command is a script, or a module, or another program; give exactly one of them")
        if self.script is not None and not self.script.is_file():
            raise ConfigError(f"there is no script {self.script}; give the path of a Python file")
        if self.program and shutil.which(self.program[0]) is None:
            raise ConfigError(f"there is no program {self.program[0]}; give one that is on the PATH")

    @property
    def name(self) -> str:
        """For titles."""
        return str(self.script or self.module or " ".join(self.program))

    @property
    def is_python(self) -> bool:
        """Whether a warm process can become it."""
        return not self.program

    def words(self, run: Path) -> list[str]:
        """The command line for a trial's run."""
        if self.script is not None:
            head = [sys.executable, str(self.script.resolve())]
        else:
            head = [sys.executable, "-m", self.module] if self.module is not None else self._program()
        return [*head, *self.filled(run)]

    @property
    def search(self) -> tuple[str, ...]:
        """Where Python looks for modules beside its own places: ``python -m`` looks where the user types it."""
        here = [os.path.abspath(self.folder or ".")] if self.module is not None else []
        given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        return (*here, *(os.path.abspath(place) for place in given if place))

    def filled(self, run: Path) -> list[str]:
        """The arguments for a trial's run."""
        return [word.replace(RUN_PLACE, str(run)) for word in self.arguments]

    def _program(self) -> list[str]:
        """With whole paths, also of words that name a file here: a trial has another working directory."""
        first, *rest = self.program
        moved = self.folder is None
        words = [os.path.abspath(word) if moved and Path(word).is_file() else word for word in rest]
        return [os.path.abspath(shutil.which(first) or first), *words]
