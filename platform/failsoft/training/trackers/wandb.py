"""Weights & Biases, by its own library. Needs the extra ``wandb``; with ``WANDB_MODE=offline`` it needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from failsoft.training.trackers.tracker import Ending, RunFacts

STEPS = "failsoft_training_applied_steps"
"""What curves are drawn over: wandb's own step may not go back, and a run does."""

_BEGUN_WITHIN_S = 15.0
"""A process doesn't end while wandb still tries to begin a run, 90 s unless it is told otherwise."""


class Wandb:
    """One run of a project for all attempts of a run; found again by its id.

    Args:
        project: its name, or ``entity/project``.
    """

    def __init__(self, project: str) -> None:
        entity, _, name = project.rpartition("/")
        self._entity, self._project = entity or None, name
        self._run: Any = None

    def begin(self, run: RunFacts) -> None:
        """Make the run, or take it up again. Nothing of this process is watched or recorded but what is told."""
        import wandb  # noqa: PLC0415 -- a second, and only where it is asked for

        quiet = wandb.Settings(
            silent=True,
            console="off",
            x_disable_stats=True,
            x_disable_meta=True,
            disable_git=True,
            save_code=False,
            init_timeout=_BEGUN_WITHIN_S,
        )
        self._run = wandb.init(
            entity=self._entity,
            project=self._project,
            id=run.identity,
            name=run.run,
            resume="allow",
            config=dict(run.config),
            dir=str(run.folder),
            reinit="create_new",
            settings=quiet,
        )
        self._run.define_metric("*", step_metric=STEPS)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Metrics, with the step beside them."""
        self._run.log(dict(values) | {STEPS: step})

    def happened(self, step: int, kind: str, why: str) -> None:
        """A text; the last one of its kind is in the summary, too."""
        self._run.log({f"events/{kind}": why, STEPS: step})

    def end(self, ending: Ending) -> None:
        """Hand over what waits; a stopped run counts as failed."""
        self._run.finish(exit_code=int(ending is Ending.STOPPED))
