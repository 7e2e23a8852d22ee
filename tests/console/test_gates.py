"""How gates ended, beside the arms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from failsoft.artifacts.bundle import Role
from failsoft.artifacts.home import Home
from failsoft.console.gates import UNKNOWN, UNREAD, Gates, in_words
from failsoft.health.clock import ManualClock, SystemClock

RESULTS: list[dict[str, Any]] = [
    {"name": "finite", "passed": True, "why": "so", "waived": None},
    {"name": "slots", "passed": False, "why": "0.91 is below 0.94", "waived": "known, mended next week"},
    {"name": "latency", "passed": False, "why": "31 ms is above 25 ms", "waived": None},
]


def publish(home: Path, name: str, results: Any) -> Path:
    store = Home(root=home).releases(SystemClock())
    body = json.dumps({"results": results})

    def write(folder: Path) -> None:
        (folder / Role.GATE_REPORT).write_text(body)

    return store.publish(name, write, meta={}).path


def test_what_failed_and_what_was_waived_is_said_with_its_reason() -> None:
    assert in_words(RESULTS) == (
        "1 passed; failed: latency (31 ms is above 25 ms); waived: slots (known, mended next week)"
    )
    assert in_words(RESULTS[:1]) == "all 1 passed"
    assert in_words([]) == "none was judged"


def test_reports_are_read_once_and_what_is_no_report_is_said(tmp_path: Path) -> None:
    whole, torn, odd = (
        publish(tmp_path, name, results) for name, results in (("r1", RESULTS), ("r2", RESULTS), ("r3", [{"x": 1}]))
    )
    (torn / Role.GATE_REPORT).write_text("{}")
    clock = ManualClock()
    gates = Gates(tmp_path / "releases", clock)
    assert gates.of("r1") == UNREAD
    gates.look(["r1", "r2", "r3", "r9"])
    assert "waived: slots" in gates.of("r1"), "a published release never changes"
    assert [gates.of(name) for name in ("r2", "r3", "r9")] == [UNKNOWN] * 3
    assert gates.of(None) == "–"
    for path in (whole, odd):
        (path / Role.GATE_REPORT).unlink()
    gates.look(["r1"])
    assert "waived: slots" in gates.of("r1"), "a published release never changes"
    publish(tmp_path, "r9", RESULTS[:1])
    gates.look(["r9"])
    assert gates.of("r9") == UNKNOWN
    clock.advance(30.0)
    gates.look(["r9"])
    assert gates.of("r9") == "all 1 passed"
