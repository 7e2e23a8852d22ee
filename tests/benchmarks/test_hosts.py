"""A benchmark's hosts are waited for no longer than told, and no process of theirs outlives whoever started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.benchmarks.leash import Leash, on_leash, ray_in_time
from tests.benchmarks.process_tree import born
from tests.benchmarks.spoken import SilentHostError, line_of
from tests.conftest import ROOT

PATIENCE_S = 60.0
HOST = """
import subprocess, sys
from tests.benchmarks.leash import led
child = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]
with led() as leash:
    below = subprocess.Popen(child, start_new_session=True)
    try:
        print(below.pid, flush=True)
        sys.stdin.read()
    finally:
        print("in order", file=sys.stderr, flush=True)
"""
STARTER = """
import subprocess, sys, time
from tests.benchmarks.leash import Leash, on_leash, ray_in_time
host = subprocess.Popen(on_leash([sys.executable, "-c", sys.argv[1]]), stdin=subprocess.PIPE)
print(host.pid, flush=True)
time.sleep(600)
"""


@contextmanager
def started(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def says(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def gone(pid: int) -> bool:
    end_s = time.monotonic() + PATIENCE_S
    while born(pid) is not None:
        if time.monotonic() > end_s:
            os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.02)
    return True


def test_a_host_that_says_nothing_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    code = "import sys, time; print('half', end='', flush=True); print('stuck at 7', file=sys.stderr); time.sleep(600)"
    with (
        started(says(code), tmp_path / "log") as process,
        pytest.raises(SilentHostError, match=r"not ready within 3 s, 0 processes below it; it said last: stuck at 7"),
    ):
        line_of(process, within_s=3.0, log=tmp_path / "log")


def test_a_led_host_that_says_nothing_tells_where_it_stands(tmp_path: Path) -> None:
    code = "import time\nfrom tests.benchmarks.leash import led\ndef waits():\n    time.sleep(600)\nwith led(): waits()"
    with (
        started(says(code), tmp_path / "log") as process,
        pytest.raises(SilentHostError, match=r"(?s)not ready within 5 s, .*in waits"),
    ):
        line_of(process, within_s=5.0, log=tmp_path / "log")


def test_a_host_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    with (
        started(says("raise SystemExit('no port')"), tmp_path / "log") as process,
        pytest.raises(SilentHostError, match="status 1; it said last: no port"),
    ):
        line_of(process, within_s=PATIENCE_S, log=tmp_path / "log")


def test_the_line_of_a_host_is_handed_over(tmp_path: Path) -> None:
    with started(says("print('{\"port\": 5}', flush=True); input()"), tmp_path / "log") as process:
        assert line_of(process, within_s=PATIENCE_S, log=tmp_path / "log") == '{"port": 5}'


def test_at_sigterm_a_host_ends_in_order_and_what_it_left_behind_is_killed(tmp_path: Path) -> None:
    with started(says(HOST), tmp_path / "log") as host:
        below = int(line_of(host, within_s=PATIENCE_S, log=tmp_path / "log"))
        host.terminate()
        assert host.wait(PATIENCE_S) == 128 + signal.SIGTERM
        assert gone(below)
        assert (tmp_path / "log").read_text("utf-8") == "in order\n"


def test_a_host_ends_with_its_starter_however_that_dies(tmp_path: Path) -> None:
    with started([*says(STARTER), HOST], tmp_path / "log") as starter:
        assert starter.stdout is not None
        pids = {int(starter.stdout.readline()) for _ in range(2)}  # of the host, and of what runs below it
        starter.kill()
        assert all([gone(pid) for pid in pids])


def test_a_host_whose_starter_is_gone_already_does_not_begin(tmp_path: Path) -> None:
    command = on_leash(says("print('here')"))
    command[command.index(str(os.getpid()))] = "1"
    with started(command, tmp_path / "log") as process:
        assert process.communicate(timeout=PATIENCE_S)[0] == b""


LATE = Exception("The current node timed out during startup.")


@pytest.mark.parametrize(
    ("errors", "raised", "starts"),
    [
        pytest.param([], None, 1, id="it comes up"),
        pytest.param([LATE, LATE], None, 3, id="the third one comes up"),
        pytest.param([LATE] * 5, "timed out", 5, id="none of five does"),
        pytest.param([ValueError("no such option")], "no such option", 1, id="what waiting does not mend"),
    ],
)
def test_a_ray_that_a_busy_machine_gave_no_time_is_started_anew(
    errors: list[Exception], raised: str | None, starts: int
) -> None:
    leash, tried = Swept(), list[int]()

    def start() -> None:
        tried.append(leash.sweeps)
        if errors:
            raise errors.pop(0)

    with nullcontext() if raised is None else pytest.raises(Exception, match=raised):
        ray_in_time(leash, start)
    assert tried == list(range(starts)), "nothing is left of one try when the next begins"
    assert leash.taken == (raised is None), "Ray takes SIGTERM when it comes up"


class Swept(Leash):
    """Counts, and leaves this process's signals alone."""

    def __init__(self) -> None:
        super().__init__()
        self.sweeps, self.taken = 0, False

    def take(self) -> None:
        self.taken = True

    def note(self) -> None:
        pass

    def sweep(self) -> None:
        self.sweeps += 1
