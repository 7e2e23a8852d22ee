"""The process that holds the drilled app: started, started again, and ended with all that came of it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from failsoft.artifacts.home import Home
from failsoft.drills.serving.processes import Family, send_all
from failsoft.drills.serving.signs import Signs
from failsoft.drills.serving.target import ServeTarget
from failsoft.errors import ServingError
from failsoft.health.clock import Clock
from failsoft.health.json_object import json_object

STOP_S = 45.0
"""Ray and Serve get so long to end by themselves."""
LINGER_S = 20.0
"""What outlives the host for longer is left behind: a worker whose node is gone ends itself within seconds."""
_LOOK_S = 0.1
_HOST = "failsoft.drills.serving.host"
_NICENESS = "RAY_worker_niceness"
"""Ray's default of 15 would let the drill's own client, or whatever else runs, starve the app that it asks."""
_NOT_OURS = ("RAY_ADDRESS", "RAY_TMPDIR")
"""Of a Ray that runs already; the drill's is its own."""


class Host:
    """One app under drill and its files, in a folder of its own that goes with it.

    Args:
        target: has an import path.
        log: everything that the host says goes there.
        clock: waits.
    """

    def __init__(self, target: ServeTarget, log: Path, clock: Clock) -> None:
        self._target, self._log, self._clock = target, log, clock
        self.folder = Path(tempfile.mkdtemp(prefix="fsd-", dir="/tmp"))  # Ray's sockets need a short path
        self.signs = Signs(self.folder / "signs")
        self.signs.folder.mkdir()
        self.home = Home(root=self.folder / "home")
        self.port = free_port()
        self.told: Mapping[str, Any] = {}
        """What the host said of the app: ``ingress`` and ``deployments``."""
        self._process: subprocess.Popen[bytes] | None = None
        self._family: Family | None = None
        self._copy_home()

    @property
    def url(self) -> str:
        """Where the app answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def family(self) -> Family:
        """The processes of the app.

        Raises:
            ServingError: it was never started.
        """
        if self._family is None:
            raise ServingError("the drilled app was not started yet")
        return self._family

    def start(self) -> None:
        """Until Serve says that the app runs.

        Raises:
            ServingError: it does not; in the words of whoever knows.
        """
        asked = {
            "app": self._target.app,
            "arguments": dict(self._target.arguments),
            "home": str(self.home.root),
            "slots": self._target.slots,
            "port": self.port,
            "ray_folder": str(self.folder / "ray"),
            "signs": str(self.signs.folder),
        }
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _HOST, json.dumps(asked)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the drill, which ends its host by hand
            )
        self._adopt(self._process.pid)
        self.told = self._line(self._target.start_within_s)
        if "error" in self.told:
            words = str(self.told["error"]).replace(str(self.home.root), str(self._target.home or "HOME"))
            raise ServingError(f"{self._target.app} was not started: {words}")

    def drain(self) -> None:
        """Every replica leaves as in a rolling update, and another takes its place; returns when Serve says so.

        Raises:
            ServingError: it does not within the time to settle.
        """
        if self._process is None or self._process.stdin is None:
            raise ServingError("the drilled app was not started yet")
        try:
            self._process.stdin.write(b"drain\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ServingError(f"the drilled app's host is gone ({error}); see {self._log}") from error
        said = self._line(self._target.start_within_s)
        if "drained" not in said:
            raise ServingError(f"the replicas were not replaced: {said.get('error', said)}")

    def lose_head(self) -> int:
        """SIGKILL to every daemon of Ray and to the host, not to the workers, which must end themselves; how many."""
        daemons = [one for one in self.family.look() if _is_daemon(one.title)]
        return len(send_all(daemons, signal.SIGKILL))

    def gone(self) -> tuple[str, ...]:
        """Wait until nothing of the app lives; what does not end by itself is ended, and its titles are returned."""
        until_s = self._clock.monotonic_s() + LINGER_S
        while (living := self.family.look()) and self._clock.monotonic_s() < until_s:
            self._clock.sleep_s(_LOOK_S)
        left = tuple(sorted(one.title[:60] for one in living))
        send_all(living, signal.SIGKILL)
        self._reap()
        return left if not _listening(self.port) else (*left, f"port {self.port} is still open")

    def close(self) -> tuple[str, ...]:
        """End it as its user would, and say what did not end; its files go. Safe to call twice."""
        left: tuple[str, ...] = ()
        if self._process is not None:
            self.family.look()
            left = self._ended()
        shutil.rmtree(self.folder, ignore_errors=True)
        return left

    def _ended(self) -> tuple[str, ...]:
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
        left = self.gone()
        self._process = None
        return left

    def _reap(self) -> None:
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process.wait(STOP_S)

    def _adopt(self, pid: int) -> None:
        if self._family is None:
            self._family = Family(pid)
        else:
            self._family.adopt(pid)

    def _line(self, within_s: float) -> Mapping[str, Any]:
        """The host's next JSON line, from its very stream: nothing else is written there."""
        if self._process is None or self._process.stdout is None:
            raise ServingError("the drilled app was not started yet")
        stream, said = self._process.stdout.fileno(), b""
        until_s = self._clock.monotonic_s() + within_s
        while not said.endswith(b"\n"):
            ready, _, _ = select.select([stream], [], [], max(0.0, until_s - self._clock.monotonic_s()))
            part = os.read(stream, 65_536) if ready else b""
            if not part:
                what = "ended" if ready else f"says nothing for {within_s:g} s"
                raise ServingError(f"the drilled app's host {what}: {_tail(self._log)}")
            said += part
        return json_object(said.splitlines()[-1]) or {}

    def _copy_home(self) -> None:
        """The newest release and the stages, so that nothing of the user's own is broken; else an empty home."""
        self.home.root.mkdir()
        if self._target.home is None:
            return
        own = Home.find(self._target.home)
        newest = own.releases(self._clock).newest()
        if newest is not None:
            shutil.copytree(newest.path, self.home.releases(self._clock).root / newest.name)
        if (own.root / "stages.toml").is_file():
            shutil.copy(own.root / "stages.toml", self.home.root)


def _is_daemon(title: str) -> bool:
    """Of Ray, or the host: all but its workers. Ray's agents are titled as workers are."""
    return not title.startswith("ray::") or title.endswith("Agent")


def free_port() -> int:
    """A port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    return {_NICENESS: "0"} | own | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def _tail(log: Path) -> str:
    try:
        return log.read_text("utf-8", "replace")[-1500:].strip() or f"its log {log} is empty"
    except OSError as error:
        return f"its log can't be read ({error})"
