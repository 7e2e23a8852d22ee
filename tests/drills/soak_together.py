"""Training and serving on one Ray, under faults, watched: what a soak is made of."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from failsoft.artifacts.home import Home
from failsoft.drills.serving.processes import Family, Process
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import each_event
from failsoft.training.accounting.whereabouts import whereabouts
from failsoft.training.snapshots.host_memory import HOST_MEMORY_VARIABLE
from tests.conftest import ROOT
from tests.drills.cluster import Head, ray_head, serving, wait_until
from tests.drills.serving_support import Reply, Traffic
from tests.drills.soak_census import Census, take
from tests.drills.soak_faults import Striker, Struck, plan
from tests.serving.tiny_release import TEXTS, publish_tiny
from train_jobs.config import JobConfig, Preset

RUN = "soak"
RATE_HZ = 10.0
LOOK_S = 5.0
CPUS = 8
"""As Ray counts: both models, both gateways, the worker, and what restarts beside them."""
_LEAVE_S, _GONE_S = 120.0, 60.0


@dataclass(kw_only=True)
class Soaked:
    """What was seen, from the first fault to after the last."""

    seed: int
    minutes: float
    began_s: float
    """Monotonic; all moments here are counted from it."""
    looks: list[Census] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    restarts_by_hand: int = 0
    """Times that the training ended for good and the same command was given again."""
    left_with: int | None = None
    """Exit status of the training, told to leave at the end."""
    ettr: float | None = None
    parts_s: dict[str, float | None] = field(default_factory=dict)
    position: int = 0
    left: tuple[str, ...] = ()
    """Processes that were there after all was ended."""
    left_in_memory: tuple[str, ...] = ()
    """Files of the run in the host's memory, after it."""


def job(home: Path) -> JobConfig:
    """One worker on the embedded corpus; more batches than the time holds."""
    return JobConfig(
        home=home,
        run=RUN,
        preset=Preset.EMBEDDED,
        workers=1,
        snapshot_every_steps=10,
        checkpoint_every_steps=50,
        epochs=1_000_000,
        backoff=BackoffPolicy(first_s=1.0, cap_s=5.0),
        publish=False,
    )


class Training:
    """The training's own command, given again when it ends before its time, as systemd would."""

    def __init__(self, head: Head, home: Path, log: Path) -> None:
        self._command = [
            sys.executable,
            "-m",
            "tests.drills.supervised_job",
            TypeAdapter(JobConfig).dump_json(job(home)).decode(),
        ]
        quiet = {"RAY_ADDRESS": head.address, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        self._environment, self._log = head.environment | quiet, log
        self.restarts = -1
        self._process: subprocess.Popen[bytes] | None = None

    def keep_going(self) -> None:
        """Start it where it does not run."""
        if self._process is None or self._process.poll() is not None:
            self.restarts += 1
            with self._log.open("ab") as output:
                self._process = subprocess.Popen(
                    self._command, cwd=ROOT, env=self._environment, stdout=output, stderr=subprocess.STDOUT
                )

    def leave(self) -> int | None:
        """Told to save and leave; its exit status, None: it had to be killed."""
        if self._process is None:
            return None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return None


def options(home: Home) -> list[str]:
    """Of the app."""
    return ["profile=drill", "gateways=2", "deadline_ms=1500", "allow_planned_faults=true", f"home={home.root}"]


def soak(folder: Path, *, minutes: float, seed: int) -> Soaked:
    """The whole of it; ``folder`` is empty."""
    home, family = Home.find(folder / "home"), Family(os.getpid())
    publish_tiny(home)
    soaked = Soaked(seed=seed, minutes=minutes, began_s=time.monotonic())
    with own_memory() as memory:
        _soak(soaked, home, family, folder)
        soaked.left = _left(family)
        soaked.left_in_memory = tuple(sorted(path.name for path in memory.rglob("*") if path.is_file()))
    return soaked


def _soak(soaked: Soaked, home: Home, family: Family, folder: Path) -> None:
    """From the head's start to its end."""
    with ray_head(home.root, num_cpus=CPUS) as head:
        with serving(head, *options(home), log=folder / "serve.log") as url:
            training = Training(head, home.root, folder / "training.log")
            training.keep_going()
            try:
                wait_until(lambda: _position(home) > 60, what="the training past its first checkpoint", timeout_s=240)
                with Traffic(url, TEXTS, rate_hz=RATE_HZ) as traffic:
                    striker = Striker(family, home, url, clock=SystemClock(), seed=soaked.seed)
                    _under_faults(soaked, striker, family, training)
                soaked.replies = traffic.replies
            finally:
                soaked.left_with = training.leave()
                soaked.restarts_by_hand = training.restarts
        _account(soaked, home)


@contextmanager
def own_memory() -> Iterator[Path]:
    """A folder in the host's memory for this soak's snapshots alone; other runs of this machine have theirs."""
    folder = Path(tempfile.mkdtemp(prefix="failsoft-soak-", dir="/dev/shm"))
    before = os.environ.get(HOST_MEMORY_VARIABLE)
    os.environ[HOST_MEMORY_VARIABLE] = str(folder)
    try:
        yield folder
    finally:
        os.environ.pop(HOST_MEMORY_VARIABLE) if before is None else os.environ.update({HOST_MEMORY_VARIABLE: before})
        shutil.rmtree(folder, ignore_errors=True)


def _under_faults(soaked: Soaked, striker: Striker, family: Family, training: Training) -> None:
    """Faults one after the other; a thread looks meanwhile."""
    over = threading.Event()
    soaked.began_s = time.monotonic()
    looking = threading.Thread(target=_look, args=(soaked, family, training, over), daemon=True)
    looking.start()
    try:
        for at_s, kind in plan(soaked.seed, soaked.minutes * 60.0):
            time.sleep(max(0.0, soaked.began_s + at_s - time.monotonic()))
            now_s = time.monotonic() - soaked.began_s
            soaked.struck.append(Struck(at_s=now_s, kind=kind, what=striker.strike(kind)))
        time.sleep(max(0.0, soaked.began_s + soaked.minutes * 60.0 - time.monotonic()))
    finally:
        over.set()
        looking.join()


def _look(soaked: Soaked, family: Family, training: Training, over: threading.Event) -> None:
    while not over.wait(LOOK_S):
        training.keep_going()
        soaked.looks.append(take(_others(family), at_s=time.monotonic() - soaked.began_s))


def _others(family: Family) -> list[Process]:
    """All but the process that watches: its own list of replies grows."""
    return [one for one in family.look() if one.pid != os.getpid()]


def _position(home: Home) -> int:
    found = [event.count("position") for event in each_event(home.ledger) if event.kind == "checkpoint_published"]
    return max(found, default=0)


def _account(soaked: Soaked, home: Home) -> None:
    events = [event for event in each_event(home.ledger) if event.subject == RUN]
    look = whereabouts(home.run(RUN), events, now_s=SystemClock().wall_s())
    soaked.ettr = look.account.ettr
    soaked.parts_s = {str(part): look.account.seconds(part) for part in look.account.micros}
    soaked.position = _position(home)


def _left(family: Family) -> tuple[str, ...]:
    """What a minute has not ended either."""
    until_s = time.monotonic() + _GONE_S
    while _others(family) and time.monotonic() < until_s:
        time.sleep(0.2)
    return tuple(sorted(f"{one.pid} {one.title[:120]}" for one in _others(family)))


def chance(soaked: Soaked) -> random.Random:
    """For the bounds of what was seen."""
    return random.Random(soaked.seed + 2)
