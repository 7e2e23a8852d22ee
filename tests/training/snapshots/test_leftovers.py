"""What lies in memory of a host with no worker: found, told apart, and swept only where nobody will come for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.training.snapshots.leftovers import LeftOver, in_words, left_over, sweep

NOW_S = 10_000.0


def leave(root: Path, key: str, *, idle_s: float, size: int = 1000) -> Path:
    folder = root / f"failsoft-{os.getuid()}" / key / "rank-0000-of-0001"
    folder.mkdir(parents=True)
    (folder / "body-1").write_bytes(bytes(size))
    for path in (folder / "body-1", folder):
        os.utime(path, (NOW_S - idle_s, NOW_S - idle_s))
    return folder


def run_of(runs: Path, name: str, key: str, driver: str = "") -> None:
    (runs / name).mkdir(parents=True)
    (runs / name / "host_memory.key").write_text(key)
    if driver:
        (runs / name / ".driver").write_text(driver)


def dead_process() -> int:
    said = [sys.executable, "-c", "import os; print(os.getpid())"]
    return int(subprocess.run(said, capture_output=True, check=True).stdout)


@pytest.mark.parametrize(
    ("driver", "idle_s", "goes"),
    [
        ("", 1.0, False),  # started by somebody who takes no lock: torchrun may be starting its workers again
        ("", 3601.0, True),
        ("\n", 1.0, False),  # where a file system has no locks, and while the note is being written
        ("process", 1.0, False),
        (f"process {os.getpid()} on {socket.gethostname()}\n", 1e6, False),  # it waits out a back-off, or for room
        (f"process 1 on {socket.gethostname()}\n", 1e6, False),  # also under another user
        ("process 5 on elsewhere\n", 1.0, False),
        ("process 5 on elsewhere\n", 3601.0, True),
    ],
    ids=[
        "nobody",
        "nobody for long",
        "no name",
        "torn name",
        "waits",
        "waits as another",
        "elsewhere",
        "gone elsewhere",
    ],
)
def test_a_run_that_somebody_drives_keeps_its_snapshots(tmp_path: Path, driver: str, idle_s: float, goes: bool) -> None:
    run_of(tmp_path / "runs", "mine", "aa", driver)
    folder = leave(tmp_path, "aa", idle_s=idle_s)
    (one,) = left_over(tmp_path / "runs", NOW_S, root=tmp_path)
    assert (one.run, one.size_bytes, one.idle_s) == ("mine", 1000, idle_s)
    assert one.may_go is goes
    assert sweep([one]) == (1000 if goes else 0)
    assert folder.exists() is not goes


def test_a_run_whose_driver_is_dead_may_go(tmp_path: Path) -> None:
    run_of(tmp_path / "runs", "mine", "aa", f"process {dead_process()} on {socket.gethostname()}\n")
    leave(tmp_path, "aa", idle_s=1.0)
    (one,) = left_over(tmp_path / "runs", NOW_S, root=tmp_path)
    assert one.may_go
    assert in_words(one).startswith("0 MB of snapshots of run mine lie in memory, untouched for 1 s")


@pytest.mark.parametrize("driven", ["first", "second"])
def test_a_copied_run_folder_does_not_give_the_snapshots_of_the_run_that_is_driven_away(
    tmp_path: Path, driven: str
) -> None:
    for name in ("first", "second"):
        process = os.getpid() if name == driven else dead_process()
        run_of(tmp_path / "runs", name, "aa", f"process {process} on {socket.gethostname()}\n")
    folder = leave(tmp_path, "aa", idle_s=1.0)
    (one,) = left_over(tmp_path / "runs", NOW_S, root=tmp_path)
    assert (one.run, one.driven, sweep([one])) == ("first and second", True, 0)
    assert folder.exists()


@pytest.mark.parametrize("number", ["99999999999999999999999", "0", "-1", "9" * 5000])
def test_a_note_with_a_number_that_no_process_has_says_nothing(tmp_path: Path, number: str) -> None:
    run_of(tmp_path / "runs", "mine", "aa", f"process {number} on {socket.gethostname()}\n")
    leave(tmp_path, "aa", idle_s=1.0)
    (one,) = left_over(tmp_path / "runs", NOW_S, root=tmp_path)
    assert (one.driven, one.may_go) == (None, False)


def test_a_note_that_can_not_be_read_says_nothing(tmp_path: Path) -> None:
    run_of(tmp_path / "runs", "mine", "aa")
    (tmp_path / "runs/mine/.driver").mkdir()
    leave(tmp_path, "aa", idle_s=1.0)
    (one,) = left_over(tmp_path / "runs", NOW_S, root=tmp_path)
    assert (one.driven, one.may_go) == (None, False)


def test_a_run_of_another_home_is_left_for_an_hour(tmp_path: Path) -> None:
    leave(tmp_path, "aa", idle_s=3599.0)
    leave(tmp_path, "bb", idle_s=3601.0, size=2000)
    old, young = left_over(tmp_path / "runs", NOW_S, root=tmp_path)
    assert (old.key, old.may_go, young.key, young.may_go) == ("bb", True, "aa", False)
    assert sweep([old, young]) == 2000


def test_what_a_worker_holds_by_now_stays(tmp_path: Path) -> None:
    folder = leave(tmp_path, "aa", idle_s=9000.0)
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(folder / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        assert sweep([LeftOver(key="aa", run=None, folders=(folder,), size_bytes=1000, idle_s=9000.0)]) == 0
        worker.communicate(b"\n")
    assert folder.exists()


def test_where_nothing_lies_nothing_is_found(tmp_path: Path) -> None:
    assert left_over(tmp_path / "runs", NOW_S, root=tmp_path) == []
