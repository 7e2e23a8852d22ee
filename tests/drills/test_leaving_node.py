"""``deploy/ray/leave-node`` with a real Ray: a drained node ends by itself when it is empty, and that is noticed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.drills.cluster import Head, ray_head

pytestmark = pytest.mark.drill


def raylet_of(head: Head) -> int:
    """Its process; other Rays may run on this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:  # it ended meanwhile
            continue
        if words[0].endswith("/raylet/raylet") and str(head.folder) in " ".join(words):
            return int(path.parent.name)
    raise AssertionError("the head has no raylet")


def test_a_node_that_is_told_to_leave_is_empty_before_its_time_is_over(tmp_path: Path) -> None:
    with ray_head(tmp_path / "home", num_cpus=1) as head:
        (tmp_path / "pgrep").write_text(f"#!/bin/sh\nkill -0 {raylet_of(head)} 2>/dev/null\n", "utf-8")
        (tmp_path / "pgrep").chmod(0o755)
        path = os.pathsep.join((str(tmp_path), head.environment["PATH"]))
        done = subprocess.run(
            ["/bin/bash", str(ROOT / "deploy" / "ray" / "leave-node"), "90", "a drill"],
            env=head.environment | {"PATH": path, "FAILSOFT_BIN": "/nowhere", "RAY_ADDRESS": head.address},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert "this node is empty" in done.stdout, done.stdout + done.stderr[-3000:]
