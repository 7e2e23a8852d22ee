"""Starts a train command, cold in a new interpreter or warm by a fork of a process that has loaded torch."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from failsoft.drills.training.command import TrainCommand
from failsoft.drills.training.inside.orders import ATTEMPT_VARIABLE, ORDERS_VARIABLE, TRIAL_VARIABLE
from failsoft.drills.training.inside.warm import READY
from failsoft.errors import TrainingError
from failsoft.training.snapshots.host_memory import HOST_MEMORY_VARIABLE

_ARRIVAL = "from failsoft.drills.training.inside.arrive import arrive\n\narrive()\n"
_SHARED = Path("/dev/shm")  # noqa: S108 -- memory of the host, not a temporary folder
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Where the user set nothing else: sums in the same order each time, and small models are fastest so."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of the command within a trial."""

    command: TrainCommand
    run: Path
    orders: Path
    log: Path
    trial: str
    """The trial's name in every process of it."""
    attempt: int = 1

    @property
    def folder(self) -> Path:
        """Working directory."""
        return self.command.folder or self.run

    @property
    def memory(self) -> Path:
        """Where snapshots of the trial's runs lie in memory of the host."""
        return (_SHARED if _SHARED.is_dir() else self.run.parent) / f"failsoft-drill-{self.trial}"

    def _memory(self) -> Path:
        self.memory.mkdir(exist_ok=True)
        return self.memory

    def environment(self) -> dict[str, str]:
        """Of the process: what the user has, and the drill's own."""
        return (
            _ONE_THREAD
            | dict(os.environ)
            | {
                ORDERS_VARIABLE: str(self.orders),
                TRIAL_VARIABLE: self.trial,
                ATTEMPT_VARIABLE: str(self.attempt),
                "FAILSOFT_HOME": str(self.run),
                HOST_MEMORY_VARIABLE: str(self._memory()),
                "PYTHONUNBUFFERED": "1",
            }
        )


class Started(Protocol):
    """A process under way. Each has a session of its own, whose number is its process number."""

    pid: int

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended, after waiting so long for it."""
        ...

    def status(self) -> int:
        """Exit status of one that has ended; negative: the signal that ended it."""
        ...


class Launcher(Protocol):
    """Starts processes."""

    def start(self, start: Start) -> Started:
        """Start one."""
        ...

    def close(self) -> None:
        """End what it keeps for itself."""
        ...


class ColdStarts:
    """A new interpreter each time, with the drill's start file in front of everything."""

    def __init__(self, folder: Path) -> None:
        self._site = folder / "site"

    def start(self, start: Start) -> Started:
        """As the user's shell does it."""
        self._site.mkdir(parents=True, exist_ok=True)
        (self._site / "sitecustomize.py").write_text(_ARRIVAL, "utf-8")
        path = os.pathsep.join([str(self._site), *start.command.search])
        with start.log.open("ab") as log:
            process = subprocess.Popen(
                start.command.words(start.run),
                cwd=start.folder,
                env=start.environment() | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return _Cold(process)

    def close(self) -> None:
        """Nothing is kept."""


class _Cold:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def wait(self, timeout_s: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._process.returncode is not None

    def status(self) -> int:
        return self._process.wait()


class WarmStarts:
    """Forks of one process that has loaded what the script loads anyway.

    Children of a script that are new interpreters get the drill's start file as with cold starts.

    Raises:
        TrainingError: the process has more than one thread after loading: a fork of it could stand still.
    """

    def __init__(self, folder: Path, modules: tuple[str, ...] = ("torch",)) -> None:
        self._site = folder / "site"
        self._site.mkdir(parents=True, exist_ok=True)
        (self._site / "sitecustomize.py").write_text(_ARRIVAL, "utf-8")
        self._server = subprocess.Popen(
            [sys.executable, "-m", "failsoft.drills.training.inside.warm", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_ONE_THREAD | dict(os.environ),
            start_new_session=True,
        )
        said = self._answer()
        if said != READY:
            self.close()
            raise TrainingError(f"a process that has loaded {', '.join(modules)} has threads; use cold starts (--cold)")

    def start(self, start: Start) -> Started:
        """A fork, which becomes the script."""
        command = start.command
        path = os.pathsep.join([str(self._site), *command.search])
        order = {
            "log": str(start.log),
            "environment": start.environment() | {"PYTHONPATH": path},
            "folder": str(start.folder),
            "script": None if command.script is None else str(command.script.resolve()),
            "module": command.module,
            "arguments": command.filled(start.run),
            "search": command.search,
        }
        return _Warm(int(self._ask(order)), self)

    def status(self, pid: int) -> int:
        """Exit status of a child of it that has ended."""
        return int(self._ask({"wait": pid}))

    def close(self) -> None:
        """End the process, by its handle."""
        if self._server.stdin is not None:
            self._server.stdin.close()
        if self._server.stdout is not None:
            self._server.stdout.close()
        try:
            self._server.wait(10.0)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _ask(self, order: dict[str, Any]) -> Any:
        if self._server.stdin is None:
            raise TrainingError("the warm process takes no orders")
        self._server.stdin.write(json.dumps(order).encode() + b"\n")
        self._server.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        line = b"" if self._server.stdout is None else self._server.stdout.readline()
        if not line:
            raise TrainingError("the process that starts the script ended; try --cold, which needs none")
        return json.loads(line)


class _Warm:
    def __init__(self, pid: int, starts: WarmStarts) -> None:
        self.pid = pid
        self._starts = starts
        self._handle = os.pidfd_open(pid, 0)
        self._status: int | None = None

    def wait(self, timeout_s: float) -> bool:
        if self._status is not None:
            return True
        ready, _, _ = select.select([self._handle], [], [], timeout_s)
        if ready:
            self._status = self._starts.status(self.pid)
            os.close(self._handle)
        return self._status is not None

    def status(self) -> int:
        if self._status is None:
            raise TrainingError(f"process {self.pid} has not ended")
        return self._status


def end_all(pids: list[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to each that is still there."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
