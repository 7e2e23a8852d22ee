"""A machine of its own for a reader: a fresh clone, an empty home, every port free, and all of it gone at the end.

Network, processes and mounts are namespaces of the kernel's, so commands are typed as a document has them, with the
ports that they have by default, beside whatever else runs on this machine. Needs root and util-linux.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import ROOT
from tests.documented import Shown, the_one
from tests.drills.cluster import wait_until
from tests.drills.outcomes import note_command

_KEPT = {"PATH", "LANG", "LC_ALL", "CI", "OMP_NUM_THREADS"}
_LAID = """set -e
ip link set lo up
mkdir -p /tmp/ray "{top}/ray" "{top}/etc/up" "{top}/etc/work"
mount --bind "{top}/ray" /tmp/ray
mount -t overlay overlay -o lowerdir=/etc,upperdir="{top}/etc/up",workdir="{top}/etc/work" /etc
mkdir -p /etc/failsoft
echo laid
exec sleep 86400
"""
_REMEMBERED = """
ended=$?
{{ export -p; declare -f; printf 'umask %s\\ncd %q\\n' "$(umask)" "$PWD"; }} >{state}
exit $ended
"""
_WITH = ("unshare", "--net", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child")


@dataclass(kw_only=True)
class Shell:
    """A reader's shell on that machine. What one command exports or where it goes, the next one finds."""

    top: Path
    inside: Sequence[str]
    """Enters the machine."""
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def checkout(self) -> Path:
        """The clone, where a reader begins."""
        return self.top / "failsoft"

    def type(self, document: str, start: str, fills: Mapping[str, str] | None = None, **how: object) -> str:
        """Carry a document's command out to its end; what it printed.

        Args:
            document: its path.
            start: how the command begins there.
            fills: what stands for a placeholder, as ``{"RELEASE": "tiny"}``.
            how: ``plus``: words that the document does not have; ``ends``: exit codes that are right; ``within_s``.
        """
        shown = the_one(document, start)
        return self._carried(shown, _filled(shown.text, fills, how), how)

    def say(self, command: str, *, within_s: float = 240.0) -> str:
        """A command that no document has."""
        done = self._run(command, within_s)
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout[-6000:]}"
        return done.stdout

    @contextmanager
    def hold(
        self, document: str, start: str, fills: Mapping[str, str] | None = None, **how: object
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Carry out what goes on until Ctrl-C, for the time of the block; it must then end by itself, well.

        Args:
            document: its path.
            start: how the command begins there.
            fills: as in :meth:`type`.
            how: ``until``: what it says once it is ready; ``plus``, ``ends``, ``within_s`` as in :meth:`type`.
        """
        shown = the_one(document, start)
        command, log = _filled(shown.text, fills, how), self.top / f"held-{len(self.running)}.log"
        started = time.monotonic()
        process = self._start(command, log)
        try:
            self._wait_for(process, log, str(how["until"]), float(str(how.get("within_s", 240.0))))
            yield process
        finally:
            ended = _interrupt(process)
            note_command(shown, command, exit_code=ended, seconds=time.monotonic() - started)
        right = how.get("ends", (0,))
        assert isinstance(right, tuple)
        assert ended in right, f"{command} ended with {ended}:\n{log.read_text('utf-8', 'replace')[-6000:]}"

    def _carried(self, shown: Shown, command: str, how: Mapping[str, object]) -> str:
        started = time.monotonic()
        done = self._run(command, float(str(how.get("within_s", 240.0))))
        note_command(shown, command, exit_code=done.returncode, seconds=time.monotonic() - started)
        right = how.get("ends", (0,))
        assert isinstance(right, tuple)
        assert done.returncode in right, f"{command} ended with {done.returncode}:\n{done.stdout[-6000:]}"
        return done.stdout

    def _run(self, command: str, within_s: float) -> subprocess.CompletedProcess[str]:
        log = self.top / "said.log"
        with log.open("wb") as output:  # a file, since a daemon that a command leaves would keep a pipe open
            done = subprocess.run(
                self._typed(f"{command}\n{_REMEMBERED.format(state=self._state)}"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=within_s,
                check=False,
            )
        return subprocess.CompletedProcess(command, done.returncode, log.read_text("utf-8", "replace"), "")

    def _start(self, command: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            process = subprocess.Popen(
                self._typed(f"exec {command}"), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        self.running.append(process)
        return process

    @property
    def _state(self) -> Path:
        return self.top / "state.sh"

    def _typed(self, command: str) -> list[str]:
        return [*self.inside, "/bin/bash", "-c", f". {self._state} >/dev/null 2>&1\n{command}"]

    def _wait_for(self, process: subprocess.Popen[bytes], log: Path, words: str, within_s: float) -> None:
        def said() -> bool:
            text = log.read_text("utf-8", "replace")
            assert process.poll() is None, f"it ended with {process.returncode}:\n{text[-6000:]}"
            return words in text

        wait_until(said, what=f"{words!r} in {log}", timeout_s=within_s)


def _filled(text: str, fills: Mapping[str, str] | None, how: Mapping[str, object]) -> str:
    for placeholder, value in (fills or {}).items():
        assert placeholder in text, f"{text} has no {placeholder}"
        text = text.replace(placeholder, value)
    return f"{text} {how['plus']}" if "plus" in how else text


def _interrupt(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C for the command inside; its process there is the child of the one that entered."""
    if process.poll() is None:
        for pid in _children(process.pid):
            os.kill(pid, signal.SIGINT)
    try:
        return process.wait(timeout=90)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]


@contextmanager
def fresh_checkout(top: Path, *, code: Path | None = None) -> Iterator[Shell]:
    """The machine, for the time of the block.

    Args:
        top: an empty folder with a short path: Ray's sockets lie below it.
        code: where failsoft is installed as a wheel; None: it is the clone's, as ``pip install -e .`` has it.
    """
    _clone(top / "failsoft")
    _make_venv(top / "failsoft", code)
    (top / "home").mkdir()
    environment = {name: value for name, value in os.environ.items() if name in _KEPT}
    environment |= {"HOME": str(top / "home"), "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
    (top / "state.sh").write_text(f"cd {top / 'failsoft'}\n", "utf-8")
    with (top / "machine.log").open("wb") as log:
        machine = subprocess.Popen(
            [*_WITH, "/bin/bash", "-c", _LAID.format(top=top)], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait_until(lambda: _is_laid(machine, top / "machine.log"), what="a machine", timeout_s=30)
        (first,) = _children(machine.pid)
        enter = ["nsenter", "--target", str(first), "--net", "--pid", "--mount", "env", "-i"]
        yield Shell(top=top, inside=[*enter, *(f"{name}={value}" for name, value in environment.items())])
    finally:
        machine.kill()  # and with it, by --kill-child, the first process of the namespace and so all others
        machine.wait()


def _is_laid(machine: subprocess.Popen[bytes], log: Path) -> bool:
    said = log.read_text("utf-8", "replace")
    assert machine.poll() is None, said
    return "laid" in said


def _clone(to: Path) -> None:
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(to)], check=True, timeout=120)


def _make_venv(checkout: Path, code: Path | None) -> None:
    """What ``make setup`` leaves, in a second and without a network: this interpreter's packages, the clone's code."""
    venv = checkout / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=120)
    here = Path(sys.executable).parent
    site = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    own = [code] if code is not None else [checkout / "platform", checkout]
    (there,) = (venv / "lib").glob("python*/site-packages")
    (there / "failsoft.pth").write_text("".join(f"{path}\n" for path in [*own, site]), "utf-8")
    for name in ("failsoft", "ray", "serve"):
        script = (here / name).read_text("utf-8").split("\n", 1)[1]
        (venv / "bin" / name).write_text(f"#!{venv}/bin/python\n{script}", "utf-8")
        (venv / "bin" / name).chmod(0o755)
    (venv / ".set-up").touch()


def _why_not() -> str | None:
    for tool in ("unshare", "nsenter", "ip", "git"):
        if shutil.which(tool) is None:
            return f"a machine of its own needs the command {tool}"
    with tempfile.TemporaryDirectory(prefix="fsd-probe-") as top:
        laid = _LAID.format(top=top).replace("exec sleep 86400", "")
        probe = subprocess.run([*_WITH, "/bin/bash", "-c", laid], capture_output=True, text=True, check=False)
    return None if probe.returncode == 0 else f"this machine gives no namespaces: {probe.stderr.strip()}"


WHY_NOT = _why_not()
"""Why there can be no such machine here; None: there can."""
