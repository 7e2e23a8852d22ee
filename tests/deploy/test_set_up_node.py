"""A machine is made a node by the script that ``ray up`` runs there, against fakes of what needs root or a network."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.deploy.test_systemd import ENVIRONMENT

SCRIPT = ROOT / "deploy" / "ray" / "set-up-node"
_SUDO = r"""#!/bin/bash
echo "$*" >>"$FAKES/sudo"
case $1 in
install) mkdir -p "${@: -2}" ;;
tee) cat >>"$FAKES/tee" ;;
chown) [[ ! -e $FAKES/squashed ]] ;;
esac
"""
_PYTHON = r"""#!/bin/bash
[[ -e $FAKES/old-python ]] && exit 1
case "$1 $2" in
"-m venv")
    mkdir -p "$3/bin"
    printf '#!/bin/bash\n' >"$3/bin/python"
    printf '#!/bin/bash\necho "$*" >>"$FAKES/pip"\n' >"$3/bin/pip"
    chmod +x "$3/bin/"*
    echo "$0" >>"$FAKES/venv"
    ;;
esac
"""


class Machine:
    """A folder in place of ``/``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("bin", "home/.ray", "opt", "etc"):
            (root / folder).mkdir(parents=True)
        (root / "mnt/failsoft").mkdir(parents=True)
        (root / "home/.ray/auth_token").write_text("a-token-of-rays", "utf-8")
        for name, text in {"sudo": _SUDO, "python3": _PYTHON, "mountpoint": "#!/bin/sh\nexit 1\n"}.items():
            self.command(name, text)
        for name in ("python3.11", "python3.12", "python3.13"):
            self.command(name, "#!/bin/sh\nexit 1\n")
        text = SCRIPT.read_text("utf-8")
        for place in ("/opt/failsoft", "/etc/failsoft", "/mnt/failsoft"):
            text = text.replace(place, f"{root}{place}")
        (root / "set-up-node").write_text(text, "utf-8")

    @property
    def home(self) -> Path:
        """Where the shared folder is mounted."""
        return self.root / "mnt/failsoft"

    def command(self, name: str, text: str) -> None:
        (self.root / "bin" / name).write_text(text, "utf-8")
        (self.root / "bin" / name).chmod(0o755)

    def set_up(self, *words: str) -> subprocess.CompletedProcess[str]:
        found = {"FAKES": str(self.root), "HOME": str(self.root / "home")}
        return subprocess.run(
            ["/bin/bash", str(self.root / "set-up-node"), str(ROOT), *words],
            env=os.environ | found | {"PATH": f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def text(self, name: str) -> str:
        path = self.root / name
        return path.read_text("utf-8") if path.exists() else ""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_gets_the_pinned_versions_the_units_and_a_token_for_one_pair_of_eyes(machine: Machine) -> None:
    done = machine.set_up()
    assert done.returncode == 0, done.stderr
    assert f"-c {ROOT}/constraints.txt" in machine.text("pip")
    token = machine.root / "etc/failsoft/ray-token"
    assert token.read_text("utf-8") == "a-token-of-rays"
    assert token.stat().st_mode & 0o777 == 0o600
    assert "FAILSOFT_HOME=/var/lib/failsoft\n" in machine.text("etc/failsoft/failsoft.env")
    assert (machine.root / "opt/failsoft/deploy/ray/leave-node").stat().st_mode & 0o111
    assert "systemctl daemon-reload" in machine.text("sudo")
    assert "User=" in machine.text("tee")


def test_a_shared_folder_is_mounted_so_that_a_reboot_mounts_it_again(machine: Machine) -> None:
    done = machine.set_up("fs-1.efs.us-west-2.amazonaws.com:/")
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in machine.text("tee").splitlines() if " nfs4 " in line)
    assert line.startswith(f"fs-1.efs.us-west-2.amazonaws.com:/ {machine.home} nfs4 ")
    assert {"hard", "_netdev", "nofail"} <= set(line.split()[3].split(","))
    assert f"mount {machine.home}" in machine.text("sudo")
    assert f"FAILSOFT_HOME={machine.home}\n" in machine.text("etc/failsoft/failsoft.env")


def test_no_unit_starts_before_the_shared_folder_is_mounted_however_late_its_server_comes(machine: Machine) -> None:
    """Else an app would begin a plan of its own in the empty folder below the mount."""
    machine.set_up("fs-1.efs.us-west-2.amazonaws.com:/")
    words = machine.text("tee").splitlines()
    assert f"RequiresMountsFor={machine.home}" in words
    assert words.index("[Unit]") < words.index(f"RequiresMountsFor={machine.home}") < words.index("[Service]")
    (line,) = (line for line in words if " nfs4 " in line)
    assert {"retry=10000", "x-systemd.mount-timeout=infinity"} <= set(line.split()[3].split(","))
    assert f"s|=/var/lib/failsoft/alerts.toml|={machine.home}/alerts.toml|" in machine.text("sudo")
    alerts = (ROOT / "deploy" / "systemd" / "failsoft-alerts.service").read_text("utf-8")
    assert "ConditionPathExists=/var/lib/failsoft/alerts.toml\n" in alerts


def test_an_export_that_squashes_root_will_do_where_the_user_may_write(machine: Machine) -> None:
    (machine.root / "squashed").touch()
    done = machine.set_up("10.0.0.10:/srv/failsoft")
    assert done.returncode == 0, done.stderr


def test_an_export_that_the_user_may_not_write_to_is_refused_with_the_mend(machine: Machine) -> None:
    (machine.root / "squashed").touch()
    machine.home.rmdir()
    done = machine.set_up("10.0.0.10:/srv/failsoft")
    assert done.returncode == 1
    assert "can't write to 10.0.0.10:/srv/failsoft; on its server: chown" in done.stderr


def test_a_second_time_it_changes_nothing_that_an_operator_has_changed(machine: Machine) -> None:
    machine.set_up()
    (machine.root / "etc/failsoft/serve.yaml").write_text("mine", "utf-8")
    variables = machine.root / "etc/failsoft/failsoft.env"
    mine = "FAILSOFT_HOME=/data/failsoft\nFAILSOFT_TRAIN_OPTIONS=--workers 1:4 --preset full"
    variables.write_text(mine, "utf-8")
    done = machine.set_up()
    assert done.returncode == 0, done.stderr
    assert machine.text("etc/failsoft/serve.yaml") == "mine"
    assert variables.read_text("utf-8").startswith(f"{mine}\n")
    names = [line.partition("=")[0] for line in variables.read_text("utf-8").splitlines()]
    assert sorted(names) == sorted(ENVIRONMENT), "what was missing is added once"
    assert "ReadWritePaths=/data/failsoft " in machine.text("tee")
    assert machine.text("home/.bashrc").count("failsoft-env") == 1
    assert len(machine.text("venv").splitlines()) == 1


def test_a_machine_without_a_token_makes_one_and_keeps_it(machine: Machine) -> None:
    (machine.root / "home/.ray/auth_token").unlink()
    machine.set_up()
    first = machine.text("etc/failsoft/ray-token")
    machine.set_up()
    assert len(first) == 64
    assert machine.text("etc/failsoft/ray-token") == first
    assert (machine.root / "etc/failsoft/ray-token").stat().st_mode & 0o777 == 0o600


def test_a_machine_whose_python_is_too_old_is_refused_with_the_mend(machine: Machine) -> None:
    """Ray's own default image for AWS has Python 3.6."""
    (machine.root / "old-python").touch()
    done = machine.set_up()
    assert done.returncode == 1
    assert "use an image that has one" in done.stderr
    assert "apt-get install" in machine.text("sudo")
