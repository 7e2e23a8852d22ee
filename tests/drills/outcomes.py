"""The table of drills: what each of them claims, and how it ended when it was last run. The run itself writes it.

``make drill`` loads this as a plugin of pytest; a run of some drills renews their lines and keeps the dates of the
others. What was recorded lies in ``docs/drills.json``, the page that is made from it in ``docs/drills.md``.

    python -m pytest -p tests.drills.outcomes -m drill [FILES]      run some, and write down how they ended
    python -m tests.drills.outcomes                                 make the page anew: files that came or went
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.documented import Shown

FOLDER_VARIABLE = "FAILSOFT_DRILL_TABLE"
"""Where the two files lie; ``docs`` without it."""
ACTIVE_VARIABLE = "FAILSOFT_DRILL_RUN"
"""Set while a run writes down what it finds, so that drills write down the commands that they type."""
_KINDS = ("drill", "soak")
_WORST_FIRST = ("failed", "passed", "skipped")

Record = dict[str, Any]


def folder() -> Path:
    """Where the record and the page lie."""
    return Path(os.environ.get(FOLDER_VARIABLE) or ROOT / "docs")


def read_record(where: Path) -> Record:
    """What was recorded so far: ``drills`` by file and function, ``commands`` by document and text."""
    path = where / "drills.json"
    empty: Record = {"format": 1, "drills": {}, "commands": {}}
    return empty if not path.exists() else dict(json.loads(path.read_text("utf-8")))


@contextmanager
def changed(where: Path) -> Iterator[Record]:
    """The record, to be changed in the block; two runs at once take turns, and a killed one leaves it whole."""
    where.mkdir(parents=True, exist_ok=True)
    lock = os.open(where, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record = read_record(where)
        yield record
        new = where / f"drills.json.{os.getpid()}"
        new.write_text(json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
        new.replace(where / "drills.json")
    finally:
        os.close(lock)


def machine() -> str:
    """What it ran on, in words."""
    kilobytes = int(Path("/proc/meminfo").read_text("ascii").split()[1]) if Path("/proc/meminfo").exists() else 0
    gpu = "with a GPU" if Path("/proc/driver/nvidia/version").exists() else "no GPU"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    ray = importlib.metadata.version("ray")
    return f"{cores} cores, {kilobytes / 2**20:.0f} GiB, {gpu}, Python {platform.python_version()}, Ray {ray}"


def today() -> str:
    """In UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def commit() -> str:
    """Of the tree that ran; with a + where it held more than that."""
    try:
        asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "?"


def note_command(shown: Shown, typed: str, *, exit_code: int, seconds: float) -> None:
    """Write down that a drill typed a documented command; without a run that writes down, nothing."""
    if not os.environ.get(ACTIVE_VARIABLE):
        return
    said = {"typed": typed, "exit_code": exit_code, "seconds": round(seconds, 1), "date": today()}
    with changed(folder()) as record:
        record["commands"][f"{shown.document}: {shown.text}"] = said


class Recorder:
    """Writes down each drill when it has ended: a run that is killed has lost only the one that it was in."""

    def __init__(self, where: Path, root: Path) -> None:
        self._where, self._root = where, root
        self._machine, self._commit = machine(), commit()
        self._seconds: dict[str, float] = {}
        self._ends: dict[str, tuple[str, str]] = {}
        self._cases: dict[str, dict[str, tuple[str, float, str]]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test; the last of them writes."""
        if not any(kind in report.keywords for kind in _KINDS):
            return
        case = report.nodeid
        self._seconds[case] = self._seconds.get(case, 0.0) + report.duration
        if report.outcome != "passed" and self._ends.get(case, ("", ""))[0] != "failed":
            self._ends[case] = (report.outcome, _why(report))
        if report.when == "teardown":
            self._write(case)

    def pytest_sessionfinish(self) -> None:
        """The page, once."""
        write_page(self._where, self._root)

    def _write(self, case: str) -> None:
        outcome, why = self._ends.pop(case, ("passed", ""))
        name = case.partition("[")[0]
        cases = self._cases.setdefault(name, {})
        cases[case] = (outcome, self._seconds.pop(case), why)
        worst = min(cases.values(), key=lambda one: _WORST_FIRST.index(one[0]))
        said = {
            "outcome": worst[0],
            "why": worst[2],
            "cases": len(cases),
            "seconds": round(sum(one[1] for one in cases.values()), 1),
            "date": today(),
            "machine": self._machine,
            "commit": self._commit,
        }
        with changed(self._where) as record:
            record["drills"][name] = said


def _why(report: pytest.TestReport) -> str:
    """In one line: why it was skipped, or the last line of how it failed."""
    found = report.longrepr
    if isinstance(found, tuple):
        return str(found[2]).removeprefix("Skipped: ")
    crash = getattr(found, "reprcrash", None)
    words = str(found) if crash is None else str(crash.message)
    return " ".join(words.split())[:200]


def write_page(where: Path, root: Path = ROOT) -> None:
    """Make the page of what is recorded and of what the tree holds; lines of what is gone are let go."""
    from tests.drills.outcome_page import drills_of, page

    with changed(where) as record:
        known = {name for drill in drills_of(root) for name in drill.names}
        record["drills"] = {name: said for name, said in record["drills"].items() if name in known}
        (where / "drills.md").write_text(page(record, root), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Of pytest."""
    if not config.option.collectonly:
        os.environ[ACTIVE_VARIABLE] = "1"
        config.pluginmanager.register(Recorder(folder(), config.rootpath), "drill-outcomes")


if __name__ == "__main__":
    write_page(folder())
