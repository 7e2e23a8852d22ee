"""A scheduler of shell scripts: its steps are local processes, the test sends its signals, its calls are noted."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from failsoft.health.clock import SystemClock
from tests.conftest import ROOT

SCRIPT = ROOT / "deploy" / "slurm" / "train.sbatch"
_PATIENCE_S = 60.0

_SRUN = r"""#!/usr/bin/env bash
# Runs the step here instead of on its node; like srun it ends when its task does, and hands signals on.
node=none
while [[ $1 == --* ]]; do
    case $1 in --nodelist=*) node=${1#--nodelist=} ;; esac
    shift
done
echo "$node: $*" >>"$FAKES/steps"
export SLURMD_NODENAME=$node
exec "$@"
"""
_SCONTROL = r"""#!/usr/bin/env bash
echo "$*" >>"$FAKES/scontrol"
case $1 in show) tr ',' '\n' <<<"$3" ;; esac
"""
_HOSTNAME = """#!/bin/sh
# As on Debian: the own name is loopback.
case $1 in
--ip-address) echo '127.0.1.1 fe80::1' ;;
*) cat "$FAKES/addresses" 2>/dev/null || echo 'fd00::1 10.0.0.1 172.17.0.1' ;;
esac
"""
_RAY = r"""#!/usr/bin/env bash
# ray start --block: up when its file is there, until SIGTERM.
case "$1 $2" in
"start --head") up=head ;;
start*) up=worker-$SLURMD_NODENAME ;;
health-check*) test -e "$FAKES/head" ; exit ;;
esac
[[ -e $FAKES/no-$up ]] && exit 1
stat -c %a "$RAY_AUTH_TOKEN_PATH" >>"$FAKES/token-modes"
trap 'echo "$up" >>"$FAKES/ended"; exit 1' TERM
echo $$ >"$FAKES/$up.pid"
touch "$FAKES/$up"
while :; do sleep 0.05; done
"""
_PYTHON = r"""#!/usr/bin/env bash
# The run's supervisor: what it does is in the file `driver`; its arguments are kept.
echo "$*" >>"$FAKES/driver-arguments"
echo "$RAY_ADDRESS" >"$FAKES/driver-ray"
source "$FAKES/driver"
"""
SAVES_WHEN_TOLD = "trap 'touch $FAKES/saved; exit 143' TERM; touch $FAKES/training; while :; do sleep 0.05; done"
NEVER_LEAVES = "trap '' TERM; touch $FAKES/training; while :; do sleep 0.05; done"
_FAKES = {"srun": _SRUN, "scontrol": _SCONTROL, "hostname": _HOSTNAME, "ray": _RAY, "python": _PYTHON}


@dataclass(kw_only=True)
class FakeSlurm:
    """One job on two nodes."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Write the commands that the script calls."""
        self.home = self.folder / "home"
        binaries = self.folder / "bin"
        for made in (self.home, binaries):
            made.mkdir()
        for name, text in _FAKES.items():
            (binaries / name).write_text(text, "utf-8")
            (binaries / name).chmod(0o755)
        self._path = f"{binaries}{os.pathsep}{os.environ['PATH']}"

    def environment(self) -> Mapping[str, str]:
        """What Slurm sets, and what the user exports."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "FAILSOFT_"))}
        slurm = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "nightly", "SLURM_JOB_NODELIST": "n1,n2"}
        mine = {"FAKES": str(self.folder), "FAILSOFT_HOME": str(self.home), "PATH": self._path}
        return kept | slurm | mine | self.variables

    def start(self, driver: str, *arguments: str, log: Path | None = None) -> subprocess.Popen[str]:
        """The batch shell as slurmd starts it: in a process group of its own; its log in a file or to be asked for."""
        (self.folder / "driver").write_text(driver, "utf-8")
        with ExitStack() as stack:
            return subprocess.Popen(
                ["/bin/bash", str(SCRIPT), *arguments],
                env=dict(self.environment()),
                stdout=subprocess.PIPE if log is None else stack.enter_context(log.open("w", encoding="utf-8")),
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def wait_for(self, name: str) -> None:
        """Until one of the fakes has left this file."""
        until((self.folder / name).exists, what=name)

    def lines(self, name: str) -> list[str]:
        """What the fakes wrote down there; nothing when they wrote nothing."""
        path = self.folder / name
        return path.read_text("utf-8").splitlines() if path.exists() else []


def until(holds: Callable[[], bool], *, what: str) -> None:
    """Ask until it holds; a test that waits for ever says for what."""
    clock = SystemClock()
    give_up_s = clock.monotonic_s() + _PATIENCE_S
    while not holds():
        if clock.monotonic_s() > give_up_s:
            raise TimeoutError(f"{what}: not within {_PATIENCE_S:g} s")
        clock.sleep_s(0.02)


def ended(job: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit status and its log. A job that does not end is killed with all that it started, and fails the test."""
    try:
        log, _ = job.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        raise
    return job.returncode, log


def left_running(job: subprocess.Popen[str]) -> list[int]:
    """Processes of the job's group that still live."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = status.read_text("utf-8").rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(words[2]) == job.pid and words[0] != "Z":
            found.append(int(status.parent.name))
    return found
