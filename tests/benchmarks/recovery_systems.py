"""The systems of the recovery benchmark: started once, standing ready side by side, killed in turns."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from failsoft.health.ledger import read_ledger
from failsoft.training.survival.warmth import SPARE_READY
from tests.benchmarks.leash import on_leash
from tests.benchmarks.process_tree import await_calm, descendants, end_all, memory_mb
from tests.benchmarks.recovery_marks import Diary, Recovery, judged, newest, read_diary
from tests.benchmarks.recovery_toy import CHECKPOINT_EVERY, WORKERS, turn_of
from tests.benchmarks.spoken import SilentHostError, last_words

ROOT = Path(__file__).resolve().parents[2]
START_S = 300.0
_LOOK_S = 0.01
_SPREAD_S = 2.5
"""Kills fall anywhere in so long a stretch: longer than Ray's default poll and than a checkpoint's interval."""


@dataclass(kw_only=True)
class System:
    """One launcher with its two workers."""

    name: str
    command: Sequence[str]
    folder: Path
    ready: Callable[[Path], bool] = lambda _folder: True
    """Whether what stands by for the next kill is ready, by what lies in the folder."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> int:
        """Its process id."""
        assert self.process is not None, f"{self.name} is not started"
        return self.process.pid

    def start(self) -> None:
        """Start with nothing on disk, and wait for the first steps."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "FAILSOFT_"))}
        ours = {
            "PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}",
            "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": str(self.folder),
        }
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                on_leash(self.command),
                cwd=ROOT,
                env=bare | ours,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        with self.its_turn():
            self._await_steps(2 * CHECKPOINT_EVERY + 1)

    def stop(self) -> None:
        """End it and all its processes."""
        if self.process is not None:
            end_all(self.process.pid)
            self.process.wait()
            self.process = None

    @contextmanager
    def its_turn(self) -> Iterator[None]:
        """It trains for the time of the block."""
        turn_of(self.folder).touch()
        try:
            yield
        finally:
            turn_of(self.folder).unlink(missing_ok=True)

    def killed(self, rng: random.Random, *, patience_s: float) -> Recovery | None:
        """Let it train, kill a worker at a random moment, and watch; None when it is not back in time."""
        with self.its_turn():
            self._await_steps(self._diaries()[0].last + CHECKPOINT_EVERY + 1)
            time.sleep(rng.uniform(0.0, _SPREAD_S))
            victim = rng.randrange(WORKERS)
            os.kill(self._diaries()[victim].pid, signal.SIGKILL)
            killed_s = time.monotonic()
            before = self._diaries()
            while time.monotonic() < killed_s + patience_s:
                time.sleep(_LOOK_S)
                recovery = judged(before, self._diaries(), killed_s=killed_s)
                if recovery is not None:
                    return recovery
        return None

    def rest(self, *, at_most_s: float = 60.0) -> bool:
        """Wait until it is done with the aftermath, spares included; False when that takes too long."""
        end_s = time.monotonic() + at_most_s
        while not self.ready(self.folder):
            if time.monotonic() > end_s:
                return False
            time.sleep(0.2)
        return await_calm(self.root, at_most_s=max(1.0, end_s - time.monotonic()))

    def size(self) -> tuple[int, float]:
        """Processes, and megabytes with what is shared counted once."""
        pids = descendants(self.root)
        return len(pids), memory_mb(pids)

    def _diaries(self) -> list[Diary]:
        diaries = [read_diary(path) for path in (self.folder / "marks").glob("*-*")]
        return newest([diary for diary in diaries if diary is not None], WORKERS)

    def _await_steps(self, least: int) -> None:
        end_s = time.monotonic() + START_S
        while not (diaries := self._diaries()) or min(diary.last for diary in diaries) < least:
            is_alive = self.process is not None and self.process.poll() is None
            if not is_alive or time.monotonic() > end_s:
                words = last_words(self.folder / "log")
                raise SilentHostError(f"{self.name} {'makes no steps' if is_alive else 'has ended'}; {words}")
            time.sleep(_LOOK_S * 5)


def bare_ray(folder: Path) -> System:
    """Ray Train V2 at its defaults."""
    script = "tests.benchmarks.recovery_plain"
    return System(name="Ray Train, defaults", command=[sys.executable, "-m", script, "ray", str(folder)], folder=folder)


def torchrun(folder: Path) -> System:
    """Torch's own launcher at its defaults, on a port of its own."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORKERS}", "--max-restarts=10000"]
    script = ["-m", "tests.benchmarks.recovery_plain", "torchrun", str(folder)]
    return System(name="torchrun", command=[sys.executable, *launch, *script], folder=folder)


def failsoft(folder: Path, *, spares: bool = True) -> System:
    """Our own, with spare workers or without."""
    name, word = ("failsoft", "spares") if spares else ("failsoft, no spares", "none")
    script = ["-m", "tests.benchmarks.recovery_failsoft", str(folder), word]
    command = [sys.executable, *script]
    return System(name=name, command=command, folder=folder, ready=_spares_ready if spares else lambda _folder: True)


def _spares_ready(folder: Path) -> bool:
    """Each group of workers orders its spares once, and each spare says when it is ready."""
    events = read_ledger(folder / "ledger.jsonl").events
    groups = sum(event.kind == "run_started" for event in events)
    orders = [int(event.data["count"]) for event in events if event.kind == "spares_ordered"]
    return len(orders) == groups and sum(event.kind == SPARE_READY for event in events) >= sum(orders)
