"""The command line: help that reads well, errors in one line with the mend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FAILSOFT = str(Path(sys.executable).with_name("failsoft"))


def failsoft(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FAILSOFT, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_help_names_every_command(tmp_path: Path) -> None:
    shown = failsoft("--help", cwd=tmp_path).stdout
    assert all(name in shown for name in ("demo", "train", "gate", "serve", "status", "degrade", "restore"))


@pytest.mark.parametrize(
    ("arguments", "mend"),
    [
        (("status", "--url", "http://127.0.0.1:9"), "failsoft serve"),
        (("degrade", "--why", "x", "--for", "soon"), "15m"),
        (("train", "--faults", "nonsense"), "nan_batch"),
        (("train", "--data", "nowhere"), "embedded corpus"),
    ],
)
def test_an_error_is_one_line_with_the_mend_and_no_traceback(
    arguments: tuple[str, ...], mend: str, tmp_path: Path
) -> None:
    done = failsoft(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert mend in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_a_gate_on_a_release_that_is_not_there_fails_with_its_own_exit_code(tmp_path: Path) -> None:
    done = failsoft("gate", "nope", cwd=tmp_path)
    assert done.returncode == 2
    assert "failsoft train" in done.stdout


def test_a_demo_never_empties_a_folder_that_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work", "utf-8")
    done = failsoft("demo", "--out", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 1
    assert (tmp_path / "thesis.txt").exists()
