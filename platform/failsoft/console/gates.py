"""How the gates of a release ended, in a few words for the table of arms: what failed, and what was waived and why."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from failsoft.artifacts.bundle import Role
from failsoft.artifacts.manifest import read_manifest, verify_file
from failsoft.errors import ArtifactError
from failsoft.health.clock import Clock
from failsoft.health.json_object import json_object

T = TypeVar("T")

UNKNOWN, UNREAD = "no gate report in the release", "not read yet"
_MOST_KNOWN = 64
_AGAIN_S = 30.0
"""A report that could not be read is looked for again after so long."""


class Gates:
    """Reads each release's report once, since a published release never changes; an unreadable one is tried again.

    Args:
        releases: the folder of them.
        clock: tells when to look again.
    """

    def __init__(self, releases: Path, clock: Clock) -> None:
        self._releases = releases
        self._clock = clock
        self._known: dict[str, str] = {}
        self._missed_s: dict[str, float] = {}

    def look(self, wanted: Sequence[str]) -> None:
        """Read what is not known of these. Blocks on the disk."""
        now_s = self._clock.monotonic_s()
        for release in wanted:
            if release in self._known or now_s - self._missed_s.get(release, -inf) < _AGAIN_S:
                continue
            words = _words(self._releases / release)
            _keep(self._missed_s, release, now_s) if words is None else _keep(self._known, release, words)

    def of(self, release: str | None) -> str:
        """What was read of one."""
        if release is None:
            return "–"
        return self._known.get(release) or (UNKNOWN if release in self._missed_s else UNREAD)


def _keep(known: dict[str, T], name: str, value: T) -> None:
    if len(known) >= _MOST_KNOWN:
        known.pop(next(iter(known)))
    known[name] = value


def _words(path: Path) -> str | None:
    """Only the small file that is read is verified."""
    try:
        verify_file(path, read_manifest(path, kind="release"), Role.GATE_REPORT)
        body = json_object((path / Role.GATE_REPORT).read_bytes()) or {}
        return in_words(body["results"])
    except (ArtifactError, OSError, ValueError, KeyError, TypeError):  # no path at all, with a zero byte in it
        return None


def in_words(results: Sequence[dict[str, Any]]) -> str:
    """Of a report's results, as ``13 passed; waived: slots (known, mended next week)``."""
    if not results:
        return "none was judged"
    passed = sum(one["passed"] is True for one in results)
    waived = [f"{one['name']} ({one['waived']})" for one in results if one["passed"] is not True and one.get("waived")]
    failed = [f"{one['name']} ({one['why']})" for one in results if one["passed"] is not True and not one.get("waived")]
    parts = [f"all {passed} passed" if passed == len(results) else f"{passed} passed"]
    parts += [f"{what}: {', '.join(names)}" for what, names in (("failed", failed), ("waived", waived)) if names]
    return "; ".join(parts)
