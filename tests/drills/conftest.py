"""What drills share: a home with a release that was trained once for the whole run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
from tests.drills.fresh_checkout import Shell, fresh_checkout
from tests.serving.tiny_release import publish_tiny


@pytest.fixture(scope="session")
def tiny_releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A releases folder with one small release."""
    home = Home.find(tmp_path_factory.mktemp("trained"))
    publish_tiny(home)
    return home.root / "releases"


@pytest.fixture
def serving_home(tiny_releases: Path, tmp_path: Path) -> Home:
    """A home of this test's own, with the release and without any plan."""
    shutil.copytree(tiny_releases, tmp_path / "releases")
    return Home.find(tmp_path)


@pytest.fixture
def shell() -> Iterator[Shell]:
    """In a fresh checkout, its environment switched on as the README has it."""
    top = Path(tempfile.mkdtemp(prefix="fsd-", dir="/tmp"))
    try:
        with fresh_checkout(top) as made:
            made.type("README.md", "source .venv/bin/activate")
            yield made
    finally:
        shutil.rmtree(top, ignore_errors=True)


@pytest.fixture
def with_release(shell: Shell, tiny_releases: Path) -> Shell:
    """Its home has a release already: trained once for all drills."""
    shutil.copytree(tiny_releases, shell.checkout / "work" / "releases")
    return shell


@pytest.fixture(scope="session")
def undisturbed_digest(tmp_path_factory: pytest.TempPathFactory, ray_local: None) -> str:
    """Digest of the final state of the toy run on two workers of Ray that nothing disturbs."""
    from tests.drills.troubled_job import TroubledJob
    from tests.drills.troubled_run import attempt, final_digest, told

    job = TroubledJob(folder=tmp_path_factory.mktemp("quiet") / "undisturbed", position=-1)
    assert attempt(job) is None
    assert told(job.folder, "hang") == []
    return final_digest(job.folder)
