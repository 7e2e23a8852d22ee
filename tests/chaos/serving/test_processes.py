"""Processes below one that was started: found, remembered beyond their parent, and struck."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from failsoft.drills.serving.processes import Family, Process, send_all, surplus
from failsoft.health.clock import SystemClock

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def await_end(process: Process) -> None:
    clock = SystemClock()
    until_s = clock.monotonic_s() + 60.0
    while process.lives:
        assert clock.monotonic_s() < until_s, "the process did not end"
        clock.sleep_s(0.01)


def test_a_child_is_found_and_not_forgotten_when_its_parent_dies(parent: subprocess.Popen[str]) -> None:
    assert parent.stdout is not None
    child_pid = int(parent.stdout.readline())
    family = Family(parent.pid)
    found = {one.pid: one for one in family.look()}
    assert set(found) == {parent.pid, child_pid}
    assert sys.executable in found[child_pid].title
    child = found[child_pid]
    assert child.send(signal.SIGSTOP), "a stopped child does not end with its parent"
    assert found[parent.pid].send(signal.SIGKILL)
    parent.wait()
    assert [one.pid for one in family.look()] == [child_pid]
    assert send_all(family.look(), signal.SIGKILL) == [child]
    await_end(child)
    assert family.look() == []
    assert not child.send(signal.SIGCONT)


def test_another_process_with_the_same_number_is_not_taken_for_it(parent: subprocess.Popen[str]) -> None:
    assert not Process(pid=parent.pid, birth="1").lives
    assert not Process(pid=parent.pid, birth="1").send(signal.SIGKILL)
    assert parent.poll() is None


def test_only_what_is_too_many_counts_as_left() -> None:
    before = Counter({"ray::ServeReplica:a:model": 1, "ray::ServeReplica:a:front": 2})
    now = Counter({"ray::ServeReplica:a:model": 2, "ray::ServeReplica:a:front": 1})
    assert surplus(before, now) == ("ray::ServeReplica:a:model",)
    assert surplus(before, before) == ()


def test_two_threads_may_look_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    family, looks = Family(os.getpid()), list[threading.Thread]()
    family.adopt(os.getppid())

    def also_adopted(one: Process) -> bool:
        if not looks:  # as if the other thread had its turn between two processes of this one
            other = threading.Thread(target=family.adopt, args=(1,))
            looks.append(other)
            other.start()
            other.join(0.3)
        return one.pid > 0

    monkeypatch.setattr(Process, "lives", property(also_adopted))
    assert os.getpid() in {one.pid for one in family.look()}
    looks[0].join()
    assert 1 in {one.pid for one in family.look()}, "what was adopted meanwhile is known at the next look"
