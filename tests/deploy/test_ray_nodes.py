"""The scripts that nodes run: the look-out for spot notices, the way out of a node, its start; all against fakes."""

from __future__ import annotations

import http.server
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ray.scripts import scripts as ray_scripts
from typer.main import get_command

from failsoft.cli import main as _commands  # noqa: F401 -- importing it hangs the commands on the app
from failsoft.cli.app import app
from tests.conftest import ROOT

SCRIPTS = ROOT / "deploy" / "ray"
HOOK = ROOT / "deploy" / "kubernetes" / "leave-run"
NOTICE = '{"action": "terminate", "time": "2026-11-30T10:00:00Z"}'
_RAY = """#!/bin/bash
printf '%s\\n' "$@" >"$FAKES/ray"
rm -f "$FAKES/raylet"
"""
_PGREP = "#!/bin/bash\n[[ -e $FAKES/raylet ]]\n"


class Metadata(http.server.BaseHTTPRequestHandler):
    """AWS's metadata service: no answer without a session token, and no notice for the first two looks."""

    looks = 0

    def do_PUT(self) -> None:
        """Hand a token out."""
        self._say(200, "a-token")

    def do_GET(self) -> None:
        """Say whether the machine goes."""
        if self.headers.get("X-aws-ec2-metadata-token") != "a-token":
            self._say(401, "")
            return
        Metadata.looks += 1
        self._say(*((200, NOTICE) if Metadata.looks > 2 else (404, "")))

    def log_message(self, *_words: object) -> None:
        """Say nothing."""

    def _say(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


@contextmanager
def metadata() -> Iterator[str]:
    Metadata.looks = 0
    server = http.server.HTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/latest"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    """Commands that the scripts call."""
    (tmp_path / "bin").mkdir()
    command(tmp_path, "ray", _RAY)
    command(tmp_path, "pgrep", _PGREP)
    command(tmp_path, "sudo", '#!/bin/bash\necho "$*" >>"$FAKES/sudo"\n')
    return tmp_path


def command(folder: Path, name: str, text: str) -> None:
    (folder / "bin" / name).write_text(text, "utf-8")
    (folder / "bin" / name).chmod(0o755)


def ran(fakes: Path, script: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    variables: Mapping[str, str] = os.environ | {
        "FAKES": str(fakes),
        "PATH": f"{fakes / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "FAILSOFT_BIN": "/nowhere",
    }
    return subprocess.run(
        ["/bin/bash", str(SCRIPTS / script), *words],
        env=dict(variables) | more,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def drain_options(fakes: Path) -> list[str]:
    return (fakes / "ray").read_text("utf-8").splitlines()


def test_a_node_is_drained_and_waited_for(fakes: Path) -> None:
    (fakes / "raylet").touch()
    done = ran(fakes, "leave-node", "60", "maintenance")
    assert done.returncode == 0, done.stderr
    assert "this node is empty" in done.stdout
    assert drain_options(fakes)[0] == "drain-node"
    assert drain_options(fakes)[-2:] == ["--deadline-remaining-seconds", "60"]


def test_what_still_runs_when_the_time_is_over_is_said_and_the_hook_ends(fakes: Path) -> None:
    (fakes / "raylet").touch()
    command(fakes, "ray", '#!/bin/bash\nprintf "%s\\n" "$@" >"$FAKES/ray"\n')
    done = ran(fakes, "leave-node", "1", "maintenance")
    assert done.returncode == 0
    assert "something still runs here" in done.stdout


def test_a_machine_without_a_node_has_nothing_to_leave(fakes: Path) -> None:
    done = ran(fakes, "leave-node", "60", "maintenance")
    assert done.returncode == 0
    assert not (fakes / "ray").exists()


def test_a_drain_that_ray_refuses_is_an_error(fakes: Path) -> None:
    (fakes / "raylet").touch()
    command(fakes, "ray", "#!/bin/bash\necho refused >&2; exit 1\n")
    done = ran(fakes, "leave-node", "60", "maintenance")
    assert done.returncode != 0
    assert "refused" in done.stderr


def test_this_ray_has_the_hidden_command_with_the_options_that_we_give(fakes: Path) -> None:
    (fakes / "raylet").touch()
    ran(fakes, "leave-node", "60", "maintenance")
    helped = CliRunner().invoke(ray_scripts.cli, ["drain-node", "--help"])
    assert helped.exit_code == 0
    for option in (word for word in drain_options(fakes) if word.startswith("--")):
        assert option in helped.output
    assert "DRAIN_NODE_REASON_PREEMPTION" in helped.output


def test_a_spot_notice_drains_the_node_and_keeps_it_from_coming_back(fakes: Path, tmp_path: Path) -> None:
    (fakes / "raylet").touch()
    marks = tmp_path / "run"
    marks.mkdir()
    with metadata() as url:
        done = ran(
            fakes,
            "spot-notice",
            FAILSOFT_METADATA=url,
            FAILSOFT_SPOT_LOOK_S="0.1",
            RUNTIME_DIRECTORY=str(marks),
        )
    assert done.returncode == 0, done.stderr
    assert Metadata.looks == 3, "two looks without a notice, then the notice"
    assert any("terminate" in option for option in drain_options(fakes))
    assert drain_options(fakes)[-1] == "100"
    assert (marks / "leaving").exists()
    worker = (ROOT / "deploy" / "systemd" / "failsoft-ray-worker.service").read_text("utf-8")
    assert "ConditionPathExists=!/run/failsoft/leaving" in worker


@pytest.mark.parametrize(
    ("kind", "more", "units"),
    [
        ("head", {}, ["failsoft-ray-head"]),
        ("worker", {}, ["failsoft-ray-worker", "failsoft-spot-notice"]),
        ("worker", {"FAILSOFT_ON_PREM": "1"}, ["failsoft-ray-worker"]),
    ],
)
def test_a_node_starts_under_systemd_with_what_ray_up_says_of_it(
    fakes: Path, kind: str, more: dict[str, str], units: list[str]
) -> None:
    text = (SCRIPTS / "start-node").read_text("utf-8").replace("/etc/failsoft", str(fakes))
    (fakes / "start-node").write_text(text, "utf-8")
    said = {"RAY_HEAD_IP": "10.0.0.1", "RAY_OVERRIDE_RESOURCES": '{"CPU": 8, "GPU": 1}'}
    done = ran(fakes, str(fakes / "start-node"), kind, **said, **more)
    assert done.returncode == 0, done.stderr
    lines = (fakes / "node.env").read_text("utf-8").splitlines()
    assert "RAY_HEAD_IP='10.0.0.1'" in lines
    assert 'RAY_OVERRIDE_RESOURCES=\'{"CPU": 8, "GPU": 1}\'' in lines
    assert any(line.startswith("FAILSOFT_HEAD_IP=") and not line.endswith("=") for line in lines)
    assert ("ray_bootstrap_config.yaml" in "".join(lines)) == (kind == "head")
    started = (fakes / "sudo").read_text("utf-8").splitlines()
    assert started == [f"systemctl restart {unit}" for unit in units]


def test_another_kind_of_node_is_refused(fakes: Path) -> None:
    done = ran(fakes, "start-node", "gateway")
    assert done.returncode == 2
    assert "neither head nor worker" in done.stderr


@pytest.mark.parametrize(("supervised", "told"), [(True, True), (False, False)])
def test_a_pod_that_goes_has_its_run_save_unless_the_run_is_over(fakes: Path, *, supervised: bool, told: bool) -> None:
    """Else each finished run's pods would stay for the whole of their time."""
    command(fakes, "pgrep", f"#!/bin/bash\nexit {int(not supervised)}\n")
    command(fakes, "failsoft", '#!/bin/bash\nprintf "%s\\n" "$@" >"$FAKES/failsoft"\n')
    done = ran(fakes, str(HOOK), "nightly", "60", "a drain")
    assert done.returncode == 0, done.stderr
    assert (fakes / "failsoft").exists() == told
    if told:
        words = (fakes / "failsoft").read_text("utf-8").splitlines()
        assert words == ["preempt", "nightly", "--wait", "60", "--why", "a drain"]
        commands: Any = get_command(app)
        commands.commands["preempt"].make_context("preempt", words[1:])  # raises on what it does not know


@pytest.mark.parametrize(
    "path", [*(path for path in SCRIPTS.iterdir() if not path.suffix), HOOK], ids=lambda path: path.name
)
def test_a_script_is_good_shell_and_can_be_started(path: Path) -> None:
    subprocess.run(["/bin/bash", "-n", str(path)], check=True)
    assert path.stat().st_mode & 0o111
    assert "set -euo pipefail" in path.read_text("utf-8")
