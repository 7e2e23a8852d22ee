"""Starts one replica of a release in a process of its own and has it answer: what the gates know of the online path."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from failsoft.errors import ServingError
from failsoft.release.replica import ReplicaReport

WITHIN_S = 300.0
"""A replica that has not answered by then is hung; a busy laptop needs some 20 s for the start alone."""
_KEPT_BACK = re.compile("TOKEN|SECRET|PASSWORD|CREDENTIAL|_KEY$|_KEY_|^RAY_", re.IGNORECASE)
"""Variables by their names that a replica which only reads one folder has no use for."""
_MODULE = "serve_apps.probe"  # by name: another process, whose imports are not this one's


def probe_replica(folder: Path, texts: Sequence[str], *, within_s: float = WITHIN_S) -> ReplicaReport:
    """What a new replica of the release in ``folder`` says to ``texts``.

    Raises:
        ServingError: it ended without a report, or was still silent after ``within_s``; it is gone then.
        DamagedArtifactError: its report can't be read.
    """
    with TemporaryDirectory(prefix="failsoft-replica-") as place:
        asked, report = Path(place) / "texts.json", Path(place) / "report.json"
        asked.write_text(json.dumps(list(texts)), "utf-8")
        command = [sys.executable, "-m", _MODULE, str(folder.absolute()), str(asked), str(report)]
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=within_s,
                check=False,
                env=_environment(),
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise ServingError(f"a replica of {folder} said nothing within {within_s:.0f} s and was ended") from error
        if done.returncode or not report.exists():
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            said = lines[-1][:500] if lines else "nothing"
            raise ServingError(f"a replica of {folder} ended with status {done.returncode} and said: {said}")
        return ReplicaReport.from_json(report.read_text("utf-8"))


def _environment() -> dict[str, str]:
    """The child finds the same code, wherever it is started; it gets no secret, and nothing that names a cluster."""
    kept = {name: value for name, value in os.environ.items() if not _KEPT_BACK.search(name)}
    return kept | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
