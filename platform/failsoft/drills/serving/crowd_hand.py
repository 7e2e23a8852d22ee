"""Requests of others beside the steady ones, sent by a process of their own."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from failsoft.drills.serving.course import Wave
from failsoft.health.json_object import json_object

_LATE_S = 60.0
"""A busy machine starts a process late."""


class CrowdHand:
    """Others ask, from a process of their own.

    Args:
        asked: see :class:`failsoft.drills.serving.crowd.Crowd`.
        bodies: what they send.
        folder: for what the process is told.
        role: for the words.
    """

    def __init__(self, asked: dict[str, Any], bodies: Sequence[bytes], *, folder: Path, role: str) -> None:
        self._asked = asked | {"bodies": [base64.b64encode(body).decode() for body in bodies]}
        self._file, self._role = folder / f"crowd-{role.replace(' ', '-')}.json", role
        self._process: subprocess.Popen[bytes] | None = None
        self._wave = Wave()

    def strike(self) -> str:
        """They begin."""
        self._file.write_text(json.dumps(self._asked), "utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "failsoft.drills.serving.crowd", str(self._file)], stdout=subprocess.PIPE
        )
        return f"{self._asked['clients']} clients with {self._role} for {self._asked['seconds']:g} s"

    def mend(self) -> None:
        """They end by themselves; what they saw."""
        if self._process is None:
            return
        try:
            said, _ = self._process.communicate(timeout=float(self._asked["seconds"]) + _LATE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            said, _ = self._process.communicate()
        counts = json_object(said) or {}
        words = tuple(map(str, counts.get("words", ())))
        asked, wrong, served = (int(counts.get(name, 0)) for name in ("asked", "wrong", "served"))
        began_s, ended_s = float(counts.get("began_s", inf)), float(counts.get("ended_s", -inf))
        self._wave = Wave(asked=asked, wrong=wrong, words=words, served=served, began_s=began_s, ended_s=ended_s)

    def reached(self) -> bool | None:
        """Whether they got to ask anything."""
        return self._wave.asked > 0

    def wave(self) -> Wave:
        """What they saw."""
        return self._wave
