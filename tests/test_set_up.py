"""``make`` sets up by itself, and says what is missing when it can't."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.conftest import ROOT

SOURCES = (ROOT / "platform" / "failsoft", ROOT / "serve_apps", ROOT / "train_jobs")
NEEDED = ("Makefile", "pyproject.toml", "constraints.txt", ".ci/setup")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in NEEDED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def make(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *words], cwd=checkout, env=clean, capture_output=True, text=True, check=False)


def test_without_a_fitting_python_the_message_says_what_fits_and_nothing_is_marked_done(checkout: Path) -> None:
    done = make(checkout, "test", "PYTHON=python2.7-absent")
    assert done.returncode != 0
    assert "failsoft needs Python 3.11, 3.12 or 3.13" in done.stderr
    assert "python2.7-absent" in done.stderr
    assert not (checkout / ".venv" / ".set-up").exists()


def test_what_is_set_up_stays_so_until_its_inputs_change(checkout: Path) -> None:
    stamp = checkout / ".venv" / ".set-up"
    stamp.parent.mkdir()
    stamp.touch()
    assert make(checkout, "-q", "setup").returncode == 0
    later_s = stamp.stat().st_mtime + 10
    os.utime(checkout / "constraints.txt", (later_s, later_s))
    assert make(checkout, "-q", "setup").returncode == 1


def test_make_alone_lists_the_commands(checkout: Path) -> None:
    listed = make(checkout).stdout
    assert all(f"make {verb}" in listed for verb in ("demo", "test", "drill", "lint", "format", "bench"))


def test_a_wheel_holds_every_package() -> None:
    """A list of packages by hand once left all rooms of the training out."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"]["find"]
    sources = [ROOT / where for where in settings["where"]]
    packages = [path.parent for root in SOURCES for path in root.rglob("__init__.py")]
    assert len(packages) > 10
    for package in packages:
        names = [".".join(package.relative_to(source).parts) for source in sources if package.is_relative_to(source)]
        assert any(fnmatch(name, pattern) for name in names for pattern in settings["include"]), package
