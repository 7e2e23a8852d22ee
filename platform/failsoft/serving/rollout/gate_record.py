"""How the gates of a published release ended, as the report that lies in it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from failsoft.artifacts.bundle import Role
from failsoft.artifacts.manifest import read_manifest, verify_file
from failsoft.errors import ArtifactError
from failsoft.health.json_object import json_object

_MAX_KEPT = 64


def gate_results(path: Path) -> dict[str, str] | None:
    """For each gate ``passed``, ``failed`` or ``waived``; None where no whole report says so.

    Args:
        path: the release's folder. Only the small file that is read is verified.
    """
    try:
        verify_file(path, read_manifest(path, kind="release"), Role.GATE_REPORT)
        body = json_object((path / Role.GATE_REPORT).read_bytes()) or {}
        return {str(one["name"]): _ended(one) for one in body["results"]}
    except (ArtifactError, OSError, ValueError, KeyError, TypeError):  # no path at all, with a zero byte in it
        return None


def _ended(result: Mapping[str, object]) -> str:
    if result["passed"] is True:
        return "passed"
    return "failed" if result.get("waived") is None else "waived"


def remembered(releases: Path) -> Callable[[str], dict[str, str] | None]:
    """Reads each release's report once; one that could not be read is looked for again."""
    known: dict[str, dict[str, str]] = {}

    def gates(release: str) -> dict[str, str] | None:
        if release not in known:
            found = gate_results(releases / release)
            if found is None:
                return None
            if len(known) >= _MAX_KEPT:
                known.pop(next(iter(known)))
            known[release] = found
        return known[release]

    return gates
