"""Requests to save now and go on, as a file each in the run's folder: ``failsoft ckpt now RUN`` leaves them.

All ranks save the same step for one: the word that some rank was asked rides on the sums of the step, as a notice does
(:mod:`failsoft.training.survival.agreement`), and then all tell each other what they were asked. Each request has an id
and is served once, also where a rank sees its file only afterwards.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from failsoft.artifacts.store import write_durably
from failsoft.health.json_object import json_object

ASKED = "asked"
"""Folder of the requests, in the run's."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """One request."""

    id: str
    why: str


class Wishes:
    """What this process was asked. Given by a thread that looks around, served by the training thread."""

    def __init__(self) -> None:
        self._open: dict[str, Wish] = {}
        self._served: set[str] = set()

    def give(self, wish: Wish) -> None:
        """Ask; one that was served is none any more."""
        self._open.setdefault(wish.id, wish)
        if wish.id in self._served:  # looked at last: it may be served at this very moment
            self._open.pop(wish.id, None)

    @property
    def open(self) -> list[Wish]:
        """Those that nobody has served, in their order."""
        return list(self._open.values())

    def serve(self, wishes: Iterable[Wish]) -> None:
        """These are served, whether or not they had come here yet."""
        for wish in wishes:
            self._served.add(wish.id)  # first, so that a file that is still there does not ask again
            self._open.pop(wish.id, None)


def drop_wish(run_folder: Path, why: str) -> Wish:
    """Ask a run, by a file in its folder, to save and go on.

    Raises:
        OSError: the disk refused.
    """
    wish = Wish(id=uuid.uuid4().hex, why=why)
    write_durably(_path(run_folder, wish.id), json.dumps({"why": why}).encode())
    return wish


def read_wishes(run_folder: Path) -> list[Wish]:
    """What a run is asked by file; none where storage is away, which asks for nothing."""
    found: list[Wish] = []
    with suppress(OSError):
        for path in sorted((run_folder / ASKED).glob("[!.]*.json")):
            told = json_object(path.read_bytes())
            if told is not None:
                found.append(Wish(id=path.stem, why=str(told.get("why", ""))))
    return found


def withdraw_wishes(run_folder: Path, wishes: Iterable[Wish]) -> None:
    """They are served, or of a run that is over. On storage that refuses they stay, for the next start to withdraw."""
    with suppress(OSError):
        for wish in wishes:
            _path(run_folder, wish.id).unlink(missing_ok=True)


def _path(run_folder: Path, wish_id: str) -> Path:
    return run_folder / ASKED / f"{wish_id}.json"
