"""What `pip install failsoft` brings: the same bytes from the same commit, and all that it needs outside a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.drills.cluster import BIN

pytestmark = pytest.mark.drill


def built(folder: Path) -> dict[str, bytes]:
    """Name and content of what one build of this checkout makes."""
    done = subprocess.run(
        [str(ROOT / ".ci" / "build"), str(BIN.parent), str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    built(folder)
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a command that finds the wheel's files and not the checkout's."""
    folder = tmp_path_factory.mktemp("site")
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "FAILSOFT_"))}
    return inherited | {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


def failsoft(environment: dict[str, str], where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "failsoft.cli.main", *words]
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_two_builds_of_one_commit_are_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in dist.iterdir()}
    assert sorted(Path(name).suffix for name in first) == [".gz", ".whl"]
    assert built(tmp_path / "again") == first


def test_the_wheel_has_every_file_of_the_packages_and_no_test(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = {path for root in ("platform/failsoft", "serve_apps", "train_jobs") for path in (ROOT / root).rglob("*")}
    files = {
        path.relative_to(ROOT).as_posix() for path in sources if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == {name.removeprefix("platform/") for name in files}


def test_outside_a_checkout_the_installed_command_knows_itself(installed: dict[str, str], tmp_path: Path) -> None:
    where = subprocess.run(
        [
            sys.executable,
            "-c",
            "import failsoft, serve_apps, train_jobs; print(failsoft.__file__, serve_apps.__file__)",
        ],
        cwd=tmp_path,
        env=installed,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert str(ROOT) not in where
    version = failsoft(installed, tmp_path, "--version")
    assert version.returncode == 0, version.stderr
    assert version.stdout.startswith("failsoft ")
    settings = failsoft(installed, tmp_path, "settings")
    assert settings.returncode == 0, settings.stderr
    doctor = failsoft(installed, tmp_path, "doctor", "--home", str(tmp_path / "work"), "--json")
    assert doctor.returncode in {0, 1}, doctor.stderr
    assert not [path for path in tmp_path.iterdir() if path.name != "work"], "it leaves nothing where it is called"
