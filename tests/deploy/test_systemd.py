"""The units: what systemd itself says of them, and what must hold of each."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from failsoft.cli import main as _commands  # noqa: F401 -- importing it hangs the commands on the app
from failsoft.cli.app import app
from failsoft.training.survival.notice import EXIT_PREEMPTED, SIGNALS
from tests.deploy.units import SYSTEMD, UNITS, Unit, read_unit
from train_jobs.options import parser

ENVIRONMENT = dict(re.findall(r"^(\w+)=(.*)$", (SYSTEMD / "failsoft.env").read_text("utf-8"), re.MULTILINE))
BY_NAME = {unit.name: unit for unit in UNITS}
HARDENED = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "CapabilityBoundingSet": "",
    "UMask": "0077",
    "SystemCallFilter": "@system-service",
}
EXPOSURE_MAX = 2.5
"""Of systemd's 10, for what needs the network, devices and compiled code."""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units with commands that are there, since systemd also looks whether they are."""
    (tmp_path / "bin").mkdir()
    for unit in UNITS:
        text = unit.path.read_text("utf-8")
        for command in set(re.findall(r"/opt/failsoft/[\w./-]+", text)):
            there = tmp_path / "bin" / Path(command).name
            there.write_text("#!/bin/sh\n", "utf-8")
            there.chmod(0o755)
            text = text.replace(command, str(there))
        (tmp_path / unit.path.name).write_text(text, "utf-8")
    return tmp_path


def analysed(*words: str) -> subprocess.CompletedProcess[str]:
    command = shutil.which("systemd-analyze")
    if command is None:
        pytest.skip("no systemd-analyze here; keys and values are only held by the tests beside this one")
    return subprocess.run([command, *words], capture_output=True, text=True, timeout=60, check=False)


def test_systemd_finds_nothing_wrong(installed: Path) -> None:
    paths = [str(path) for path in sorted(installed.glob("*.service"))]
    found = analysed("verify", "--man=no", *paths)
    ours = [line for line in (found.stdout + found.stderr).splitlines() if "failsoft" in line]
    assert ours == []


def test_systemd_would_find_a_misspelt_key(installed: Path) -> None:
    """Else the test above would prove nothing."""
    path = installed / "failsoft-alerts.service"
    path.write_text(path.read_text("utf-8").replace("RestartSec=", "RestartSecs="), "utf-8")
    found = analysed("verify", "--man=no", str(path))
    assert "RestartSecs" in found.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_exposed_as_little_as_its_work_allows(unit: Unit) -> None:
    found = analysed("security", "--offline=yes", "--no-pager", str(unit.path))
    if "Unknown" in found.stderr or "unrecognized" in found.stderr:
        pytest.skip(f"this systemd-analyze judges no files: {found.stderr.strip()}")
    level = re.search(r"exposure level for \S+: ([\d.]+)", found.stdout)
    assert level is not None, found.stdout + found.stderr
    assert float(level[1]) <= EXPOSURE_MAX


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_unit_is_hardened_and_runs_as_nobody_in_particular(unit: Unit) -> None:
    assert {key: unit.last("Service", key, "unset") for key in HARDENED} == HARDENED
    assert unit.last("Service", "User") == "failsoft"
    assert unit.last("Install", "WantedBy") == "multi-user.target"
    assert unit.last("Unit", "Description")


def test_what_would_hide_a_gpu_or_stop_a_compiler_is_not_set() -> None:
    for unit in UNITS:
        for key in ("PrivateDevices", "ProtectClock", "MemoryDenyWriteExecute", "DevicePolicy"):
            assert unit.values("Service", key) == [], f"{unit.name}: {key}"


def test_a_run_hears_the_signal_of_its_unit_and_its_exits_mean_what_the_supervisor_says() -> None:
    train = BY_NAME["failsoft-train@"]
    assert train.last("Service", "KillSignal") in {number.name for number in SIGNALS}
    assert train.last("Service", "KillMode") == "mixed", "else the driver hears it, too, and ends before its workers"
    assert train.last("Service", "SuccessExitStatus") == str(EXIT_PREEMPTED)
    assert train.last("Service", "RestartPreventExitStatus").split() == ["3", "4"]
    assert train.last("Service", "Restart") == "on-failure"
    burst, interval_s = (train.last("Unit", key) for key in ("StartLimitBurst", "StartLimitIntervalSec"))
    assert int(interval_s) >= int(burst) * (600 + 30), "starts that each waited for Ray would never be counted together"


def test_the_trained_command_is_one_that_the_job_takes() -> None:
    command = BY_NAME["failsoft-train@"].last("Service", "ExecStart")
    words = command.partition("train_jobs.intent_ner ")[2].replace("%i", "nightly").split()
    given = ENVIRONMENT["FAILSOFT_TRAIN_OPTIONS"].split()
    assert words[-1] == "$FAILSOFT_TRAIN_OPTIONS"
    assert parser().parse_args([*words[:-1], *given]).run == "nightly"


def test_the_alerts_command_is_one_that_the_command_line_takes() -> None:
    words = BY_NAME["failsoft-alerts"].last("Service", "ExecStart").split()[1:]
    commands: object = get_command(app)
    run = commands.commands[words[0]].commands[words[1]]  # type: ignore[attr-defined]
    assert run.make_context("run", words[2:]).params["port"] == 9095


def test_the_heads_memory_is_on_a_disk_that_is_made_for_it() -> None:
    head = BY_NAME["failsoft-ray-head"]
    (memory,) = (value for value in head.values("Service", "Environment") if "RAY_gcs_storage=rocksdb" in value)
    folder = memory.partition("RAY_gcs_storage_path=/var/lib/")[2]
    assert folder in head.last("Service", "StateDirectory").split()
    assert ENVIRONMENT["FAILSOFT_HOME"] == "/var/lib/failsoft"
    assert not folder.startswith("failsoft/"), "the home may be NFS, which RocksDB must not lie on"


def test_ray_listens_where_a_firewall_can_name_it() -> None:
    for name in ("failsoft-ray-head", "failsoft-ray-worker"):
        command = BY_NAME[name].last("Service", "ExecStart")
        ports = {key: int(port) for key, port in re.findall(r"--([\w-]*port)=(\d+)", command)}
        workers = range(ports.pop("min-worker-port"), ports.pop("max-worker-port") + 1)
        assert len(set(ports.values())) == len(ports)
        assert not any(port in workers for port in ports.values())
        assert {"node-manager-port", "object-manager-port", "metrics-export-port", "runtime-env-agent-port"} <= set(
            ports
        )
    head = BY_NAME["failsoft-ray-head"].last("Service", "ExecStart")
    assert "--dashboard-host=127.0.0.1" in head
    assert ENVIRONMENT["FAILSOFT_HEAD_IP"] == "127.0.0.1"


def test_a_job_that_is_handed_to_ray_finds_the_python_that_has_failsoft() -> None:
    """Ray starts its command by a shell with the head's own PATH, and systemd's has no virtual environment in it."""
    head = BY_NAME["failsoft-ray-head"]
    venv = str(Path(head.last("Service", "ExecStart").split()[0]).parent)
    assert ENVIRONMENT["PATH"].split(":")[0] == venv
    assert {"/usr/bin", "/bin", "/usr/sbin"} <= set(ENVIRONMENT["PATH"].split(":"))
    assert "/etc/failsoft/failsoft.env" in head.values("Service", "EnvironmentFile")
    assert head.values("Service", "Environment") == [head.last("Service", "Environment")], "none of them sets it again"


def test_no_secret_is_in_the_environment_file() -> None:
    assert ENVIRONMENT["RAY_AUTH_MODE"] == "token"
    assert [name for name in ENVIRONMENT if "TOKEN" in name] == ["RAY_AUTH_TOKEN_PATH"]


def test_a_unit_file_is_read_as_systemd_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "a.service"
    path.write_text("# no\n[Service]\nExecStart=/bin/a \\\n    --b\nEnvironment=X=1\nEnvironment=Y=2\n", "utf-8")
    unit = read_unit(path)
    assert unit.last("Service", "ExecStart").split() == ["/bin/a", "--b"]
    assert unit.values("Service", "Environment") == ["X=1", "Y=2"]
