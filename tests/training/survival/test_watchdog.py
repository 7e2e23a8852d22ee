from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Event, Ledger, Side, read_ledger
from failsoft.training.survival.stack_files import HANGS_FOLDER
from failsoft.training.survival.stacks import MAX_STACKS_CHARS, bounded, stacks_of_all_threads
from failsoft.training.survival.watch_policy import EXIT_HUNG, Patience, Stillness, WatchPhase, WatchPolicy, overdue
from failsoft.training.survival.watchdog import Watchdog, WatchPost

POLICY = WatchPolicy(tick_s=1.0)
STEP_LOOKS = 240


@pytest.mark.parametrize("phase", list(WatchPhase))
def test_each_phase_has_a_limit_of_its_own(phase: WatchPhase) -> None:
    limit_s = POLICY.limit_s(phase)
    assert not overdue(phase, limit_s, POLICY)
    assert overdue(phase, math.nextafter(limit_s, math.inf), POLICY)
    assert overdue(phase, math.nan, POLICY)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"step_s": 0.0}, "step_s is 0.0"),
        ({"validation_s": math.nan}, "validation_s is nan"),
        ({"tick_s": 0.0}, "tick_s is 0.0"),
        ({"interpreter_s": 1.0}, "interpreter_s is 1.0 with a look each 0.5 s"),
        ({"interpreter_s": math.inf}, "interpreter_s is inf"),
        ({"muster_s": 1.0}, "muster_s is 1.0 with a look each 0.5 s"),
        ({"muster_s": math.nan}, "muster_s is nan"),
        ({"silence_s": 3600.0}, "silence_s is 3600.0, and a phase may take 3600.0 s"),
    ],
)
def test_limits_that_nothing_could_keep_are_refused(setting: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        WatchPolicy(**setting)


def test_patience_begins_anew_with_each_mark_and_runs_out_on_one_that_stands() -> None:
    patience, mark = Patience(POLICY), object()
    looks = [patience.look(object(), WatchPhase.STEP, float(second)) for second in range(1000)]
    looks += [patience.look(mark, WatchPhase.STEP, 1000.0 + second) for second in range(STEP_LOOKS + 1)]
    assert not any(looks)
    assert patience.look(mark, WatchPhase.STEP, 1000.0 + STEP_LOOKS + 1)


def test_a_process_that_was_frozen_for_an_hour_has_not_hung() -> None:
    patience, mark = Patience(POLICY), object()
    assert not patience.look(mark, WatchPhase.STEP, 0.0)
    assert not patience.look(mark, WatchPhase.STEP, 3600.0)
    assert patience.since_s == 2.0


def test_stillness_counts_from_the_first_change_that_it_sees() -> None:
    stillness = Stillness(60.0)
    assert not any(stillness.look(17, float(second)) for second in range(1000))  # of the group before; this one starts
    assert not any(stillness.look(10, 1000.0 + second) for second in range(61))
    assert stillness.look(10, 1061.0)
    assert not stillness.look(11, 1062.0)


@pytest.fixture
def post(tmp_path: Path) -> WatchPost:
    clock = ManualClock()
    ledger = Ledger(tmp_path / "ledger.jsonl", clock, side=Side.TRAINING, subject="run")
    return WatchPost(folder=tmp_path, ledger=ledger, clock=clock, rank=1)


def events_of(post: WatchPost) -> tuple[Event, ...]:
    return read_ledger(post.ledger.path).events


def look_for(watchdog: Watchdog, post: WatchPost, seconds: int) -> None:
    assert isinstance(post.clock, ManualClock)
    for _ in range(seconds):
        post.clock.advance(1.0)
        watchdog.look()


@pytest.fixture
def ended() -> list[int]:
    return []


@pytest.fixture
def watchdog(post: WatchPost, ended: list[int]) -> Watchdog:
    """Looks only when asked, and leaves pytest's own outer timer alone."""
    return Watchdog(post, POLICY, end=ended.append)


def test_a_step_that_stands_still_is_told_with_stacks_and_ends_the_worker(
    watchdog: Watchdog, post: WatchPost, ended: list[int]
) -> None:
    watchdog.begins(6)
    look_for(watchdog, post, 500)
    watchdog.begins(7)
    look_for(watchdog, post, STEP_LOOKS)
    assert ended == []
    (post.folder / HANGS_FOLDER).mkdir()
    watchdog.path.touch()
    look_for(watchdog, post, 2)
    assert ended[0] == EXIT_HUNG == 124
    hang = events_of(post)[0]
    assert (hang.kind, hang.data["phase"], hang.data["position"], hang.data["rank"]) == ("hang", "step", 7, 1)
    assert "step at batch 7 takes longer than its 240 s" in hang.why
    assert Path(str(hang.data["file"])).is_file()


def test_a_checkpoint_may_take_longer_than_a_step_and_the_step_after_it_is_timed_anew(
    watchdog: Watchdog, post: WatchPost, ended: list[int]
) -> None:
    watchdog.begins(0)
    watchdog.begins(1)
    look_for(watchdog, post, STEP_LOOKS - 10)
    with watchdog.during(WatchPhase.CHECKPOINT):
        look_for(watchdog, post, 1700)
    look_for(watchdog, post, STEP_LOOKS - 10)
    assert ended == []


def test_chores_are_done_at_each_look(post: WatchPost) -> None:
    done: list[int] = []
    watchdog = Watchdog(post, POLICY, chores=[lambda: done.append(1)])
    look_for(watchdog, post, 3)
    assert done == [1, 1, 1]


def test_the_stacks_of_the_watched_thread_come_first_and_a_cut_is_told() -> None:
    stuck, ready = threading.Event(), threading.Event()

    def stand_still() -> None:
        ready.set()
        stuck.wait()

    thread = threading.Thread(target=stand_still, name="training")
    thread.start()
    ready.wait()
    stacks = stacks_of_all_threads(first=thread.ident)
    stuck.set()
    thread.join()
    assert stacks.startswith("thread training:")
    assert "stand_still" in stacks.split("thread ")[1]
    assert bounded("x" * (MAX_STACKS_CHARS + 5)).endswith("5 more characters in the file")


HELD = """
import re, sys
from pathlib import Path
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.survival.watch_policy import WatchPolicy
from failsoft.training.survival.watchdog import Watchdog, WatchPost
folder = Path(sys.argv[1])
ledger = Ledger(folder / "ledger.jsonl", SystemClock(), side=Side.TRAINING, subject="run")
post = WatchPost(folder=folder, ledger=ledger, clock=SystemClock())
{body}
"""
HOLDS = """
with Watchdog(post, WatchPolicy(tick_s=0.1, interpreter_s=0.5)):
    re.match(r"(a+)+$", "a" * 60 + "b")  # years, and the interpreter's lock is never given back
"""
STANDS = """
import threading
with Watchdog(post, WatchPolicy(tick_s=0.05, start_up_s=0.3)):
    threading.Event().wait()
"""
RETURNS = """
with Watchdog(post, WatchPolicy()):
    pass
"""


def python(folder: Path, body: str) -> int:
    command = [sys.executable, "-c", HELD.replace("{body}", body), str(folder)]
    return subprocess.run(command, check=False, timeout=60, env=os.environ | {"OMP_NUM_THREADS": "1"}).returncode


def test_a_call_that_holds_the_interpreter_is_ended_from_outside_and_told_by_the_next_worker(tmp_path: Path) -> None:
    assert python(tmp_path, HOLDS) == 1
    assert "re/" in (tmp_path / HANGS_FOLDER / "rank-0.txt").read_text("utf-8")
    assert python(tmp_path, RETURNS) == 0
    (hang,) = read_ledger(tmp_path / "ledger.jsonl").events
    assert "Python stood still" in hang.why
    assert python(tmp_path, RETURNS) == 0
    assert len(read_ledger(tmp_path / "ledger.jsonl").events) == 1


def test_a_worker_that_stands_still_ends_by_itself_with_the_documented_status(tmp_path: Path) -> None:
    assert python(tmp_path, STANDS) == EXIT_HUNG
    (hang,) = read_ledger(tmp_path / "ledger.jsonl").events
    assert hang.data["phase"] == "start-up"
    assert "threading.py" in str(hang.data["where"])
    assert str(hang.data["stacks"]).startswith("thread MainThread:")
