"""The command of failsoft-ray-head.service as systemd runs it: a killed GCS ends it, and it comes back whole."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.units import SYSTEMD, UNITS
from tests.drills.cluster import BIN, STARTED, child, free_ports, wait_until

pytestmark = pytest.mark.drill

HEAD = next(unit for unit in UNITS if unit.name == "failsoft-ray-head")
_ACTOR = """
import ray, sys
ray.init(address=sys.argv[1], namespace="drill", log_to_driver=False)
class Memory:
    def __init__(self): self.said = "from before"
    def say(self): return self.said
made = ray.remote(num_cpus=0, max_restarts=-1, lifetime="detached", name="memory")(Memory)
if sys.argv[2] == "make":
    print("SAID", ray.get(made.remote().say.remote()))
else:
    print("SAID", ray.get(ray.get_actor("memory").say.remote(), timeout=60))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: sockets' paths must fit in 107 bytes."""
    made = Path(tempfile.mkdtemp(prefix="fsu-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def _own_variables() -> list[str]:
    return HEAD.last("Service", "Environment").split()


def environment(folder: Path) -> dict[str, str]:
    """What the unit's process gets, with folders below one of ours."""
    given = re.findall(r"^(\w+)=(.*)$", (SYSTEMD / "failsoft.env").read_text("utf-8"), re.MULTILINE)
    given += [(name, value) for name, _, value in (one.partition("=") for one in _own_variables())]
    settled = {name: re.sub(r"/var/(lib|cache)", str(folder), value) for name, value in given}
    (folder / "ray-token").write_text("0" * 64, "utf-8")
    settled |= {"RAY_AUTH_TOKEN_PATH": str(folder / "ray-token"), "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "FAILSOFT_", "PYTHONPATH"))
    }
    return kept | settled | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


def command(variables: dict[str, str]) -> list[str]:
    """The unit's, with ports that are free here and no more than a drill needs."""
    text = HEAD.last("Service", "ExecStart").replace("/opt/failsoft/venv/bin", str(BIN))
    text = re.sub(r"\$\{?(\w+)\}?", lambda found: variables[found[1]], text)
    text = re.sub(r" --m(in|ax)-worker-port=\d+", "", text)  # Ray's own range: other clusters run on this machine
    flags = re.findall(r"--[\w-]*port(?==)", text)
    for flag, port in zip(flags, free_ports(len(flags)), strict=True):
        text = re.sub(rf"{flag}=\d+", f"{flag}={port}", text)
    return [*shlex.split(text), "--num-cpus=1", f"--object-store-memory={100 * 1024 * 1024}"]


def asked(words: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=variables, capture_output=True, text=True, timeout=120, check=False)


@contextmanager
def head(words: list[str], variables: dict[str, str], address: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with child(words, environment=variables, log=log) as process:
        probe = [str(BIN / "ray"), "health-check", "--address", address]
        wait_until(lambda: STARTED in log.read_text("utf-8"), what="the node", timeout_s=240)
        assert asked(probe, variables).returncode == 0, "the unit's ExecStartPost would fail"
        yield process


def gcs_of(folder: Path) -> int:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace")
        except OSError:  # it ended meanwhile
            continue
        if "/gcs/gcs_server" in words.split("\0", 1)[0] and str(folder) in words:
            return int(path.parent.name)
    raise AssertionError("the head has no GCS")


def test_a_killed_gcs_ends_the_units_process_and_the_next_one_remembers(folder: Path) -> None:
    variables = environment(folder)
    for name in ("failsoft", "failsoft-gcs"):
        (folder / name).mkdir()
    words = command(variables)
    port = next(word for word in words if word.startswith("--port=")).partition("=")[2]
    address = f"{variables['FAILSOFT_HEAD_IP']}:{port}"
    script = [sys.executable, "-c", _ACTOR, address]
    with head(words, variables, address, folder / "first.log") as process:
        made = asked([*script, "make"], variables)
        assert "SAID from before" in made.stdout, made.stderr[-3000:]
        os.kill(gcs_of(folder), signal.SIGKILL)
        assert process.wait(timeout=120) != 0, "systemd would not start it again"
    with head(words, variables, address, folder / "second.log"):
        found = asked([*script, "ask"], variables)
        assert "SAID from before" in found.stdout, found.stderr[-3000:]
