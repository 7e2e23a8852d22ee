"""What ``failsoft preflight`` prints of what was found."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys

from rich.console import Console

from failsoft.cli.preflight import _as_json, _table
from failsoft.training.survival.preflight import NodeReport, failed, no_answer, not_here, passed

WELL = NodeReport(node="a1", host="one/a1", findings=(passed("disk", "1 MiB"), not_here("GPU memory", "no GPU")))
ILL = NodeReport(node="b2", host="two/b2", findings=(failed("disk", "full"), no_answer("node", "no answer in 5 s")))


def test_each_node_has_a_row_and_what_is_not_there_is_told_apart_from_a_pass() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(_table([WELL, ILL]))
    rows = {line.split("│")[1].strip(): line for line in console.export_text().splitlines() if "│" in line}
    assert [cell.strip() for cell in rows["one/a1"].split("│")[2:-1]] == ["0 ms", "–", "not asked"]
    assert [cell.strip() for cell in rows["two/b2"].split("│")[2:-1]] == ["failed", "not asked", "no answer"]


def test_json_says_of_each_probe_what_came_of_it_and_why() -> None:
    said = _as_json(ILL)
    assert (said["node"], said["host"], said["passed"]) == ("b2", "two/b2", False)
    assert said["findings"][0] == {"probe": "disk", "outcome": "failed", "why": "full", "took_s": 0.0}  # type: ignore[index]  # JSON


def test_an_address_where_nobody_answers_ends_in_one_line_that_says_what_to_do() -> None:
    with socket.socket() as taken:  # bound and not listening: whoever knocks is refused
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = subprocess.run(
            [sys.executable, "-m", "failsoft.cli.main", "preflight", "--address", address],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ,
        )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines() == [
        f"failsoft: no Ray at {address}: nobody answers there; see: ray status --address {address}, "
        "or leave --address out for a Ray here"
    ]
