"""A look at the model that was broken off, since the run was told to leave: owed, and made up before the next update.

Else the checkpoint of that moment would stay unjudged for good: it has no metric, so it is never the best one. That a
look is owed is part of the training state, so it is known wherever the run goes on from, and by how many ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.checkpoints.judged import judged, note_judged
from failsoft.training.chronicle import Chronicle
from failsoft.training.ranks import any_rank


@runtime_checkable
class BreaksOff(Protocol):
    """A validation that may break a look off. Optional; without it every look counts as done."""

    @property
    def broken_off(self) -> bool:
        """Whether the last ``run`` was, as all ranks know it: they leave at this very step then."""
        ...


class OwedLook:
    """Whether the look at the present state is owed; the same on all ranks."""

    def __init__(self, chronicle: Chronicle) -> None:
        self._chronicle = chronicle
        self.owed = False

    def ran(self, validation: object) -> None:
        """It has looked, or begun to."""
        self.owed = isinstance(validation, BreaksOff) and validation.broken_off

    def still(self, checkpoints: Checkpoints) -> bool:
        """Whether it is to be made up now, at the start of a group of workers. All ranks call it together.

        A group before this one may have made it up, and died before its next checkpoint.
        """
        if self.owed:
            self.owed = not any_rank(checkpoints.ranks, _is_judged(checkpoints))
        return self.owed

    def judge(self, checkpoints: Checkpoints, found: Mapping[str, float]) -> None:
        """It is made up; what it found counts for the checkpoint that the run goes on from. All ranks call it."""
        self._chronicle.tell("validation_made_up", "it was broken off when the run was told to leave", metrics=found)
        if checkpoints.restored is None or checkpoints.ranks.rank != 0:
            return
        try:
            note_judged(checkpoints.store.root, checkpoints.restored, found)
        except OSError as error:
            said = f"{error}; {checkpoints.restored.name} stays without the metrics of its validation"
            self._chronicle.tell("judgement_lost", said, name=checkpoints.restored.name)

    def state_dict(self) -> dict[str, Any]:
        """As small JSON."""
        return {"owed": self.owed}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the word of a checkpoint on."""
        self.owed = bool(state_dict["owed"])


def _is_judged(checkpoints: Checkpoints) -> bool:
    """Rank 0's word; where the note can't be read, one more look costs its time and nothing else."""
    if checkpoints.restored is None or checkpoints.ranks.rank != 0:
        return False
    try:
        return checkpoints.restored.manifest.digest in judged(checkpoints.store.root)
    except OSError:
        return False
