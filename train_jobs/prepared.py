"""Where the driver leaves a run's corpus for its workers."""

from __future__ import annotations

from pathlib import Path

from failsoft.artifacts.home import Home
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ConfigError
from failsoft.health.clock import Clock
from failsoft.training.letters.letterbook import LETTERS_FOLDER

CORPUS = "corpus"
_FOREIGN = ("checkpoints", LETTERS_FOLDER, "position", "consumed")
"""What a run that has begun leaves in its folder; a run of this job has its corpus there before."""


def prepared_corpus(home: Home, run: str, clock: Clock) -> ArtifactStore:
    """The store with the one entry ``corpus``."""
    return ArtifactStore(home.run(run) / "prepared", clock, kind="prepared corpus")


def refuse_foreign(run_folder: Path) -> None:
    """Keep off the folder of a run that another trainer has begun.

    Raises:
        ConfigError: traces of a run are there, and no corpus of ours; nothing was touched.
    """
    traces = [name for name in _FOREIGN if (run_folder / name).exists()]
    if traces and not (run_folder / "prepared").is_dir():
        raise ConfigError(
            f"run {run_folder.name!r} was begun by another trainer ({run_folder} holds {', '.join(traces)} and no "
            "prepared corpus); go on with it by its own script, or use another run name"
        )
