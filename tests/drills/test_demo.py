"""The README's main command, as a newcomer runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.drill


def test_the_demo_loses_no_request_recovers_in_stages_and_leaves_nothing_running(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("failsoft")), "demo", "--out", str(tmp_path / "demo")]
    marked = os.environ | {"FAILSOFT_DEMO_MARK": str(tmp_path)}
    done = subprocess.run(
        command, env=marked, capture_output=True, text=True, timeout=600, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    summary = json.loads((tmp_path / "demo" / "summary.json").read_text("utf-8"))
    assert summary["lost"] == 0
    assert summary["training"]["batches_refused"] == 5
    assert summary["training"]["rollbacks"] == 1
    assert summary["training"]["worker_deaths"] == 1
    assert summary["incident"]["until_last_replica_ms"] is not None
    assert summary["stages"][-5:] == ["shadow", "canary", "ramp_20", "ramp_50", "serving"]
    for name in ("report.html", "incident.png"):
        assert (tmp_path / "demo" / name).stat().st_size > 10_000
    gone_by_s = time.monotonic() + 30.0  # Ray's own processes end a moment after their driver
    while (left := left_running(str(tmp_path))) and time.monotonic() < gone_by_s:
        time.sleep(0.2)
    assert left == []


def left_running(mark: str) -> list[str]:
    """Commands of living processes that inherited the demo's environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"FAILSOFT_DEMO_MARK={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return [command for command in found if command.strip()]
