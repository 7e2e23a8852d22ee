"""A word to the next attempt of the run: memory ran out where the ranks could not agree on a smaller step.

The worker that ran out ends, and the others by the time-out of their process group. Without the word the restarted run
would do the same again.
"""

from __future__ import annotations

import json
from pathlib import Path

from failsoft.health.json_object import json_object

NAME = "memory_note.json"


def leave_note(run_folder: Path, why: str) -> bool:
    """Say why the next attempt should begin a notch lower; False where the disk refuses."""
    try:
        (run_folder / NAME).write_text(json.dumps({"format": 1, "why": why}), "utf-8")
    except OSError:
        return False
    return True


def take_note(run_folder: Path) -> str:
    """The word that was left, once; empty when there is none. One rank reads it for all."""
    path = run_folder / NAME
    try:
        said = json_object(path.read_bytes())
        path.unlink()
    except OSError:
        return ""
    return "memory ran out in the attempt before" if said is None else str(said.get("why", ""))
