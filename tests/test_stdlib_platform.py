"""The folder ``platform/`` is a source root; the standard library's module of that name must win everywhere."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import ROOT

STDLIB = Path(sysconfig.get_paths()["stdlib"]).resolve()


def where_platform_comes_from() -> str:
    """Which file a plain ``import platform`` loads in the process that runs this."""
    import platform

    import failsoft

    platform.system()
    assert failsoft.__file__ is not None
    return str(platform.__file__)


class WhereIsPlatform:
    """The same question, asked in a Serve replica."""

    async def where(self) -> str:
        return where_platform_comes_from()


def is_stdlib(path: str) -> bool:
    return Path(path).resolve().parent == STDLIB


@pytest.mark.parametrize("folder", [ROOT, ROOT / "platform", ROOT / "tests"], ids=lambda folder: folder.name)
def test_the_standard_library_wins_in_a_folder_of_the_checkout(folder: Path) -> None:
    """Paths on purpose, not a packaged name: the danger is the working folder at the head of the path."""
    code = "import platform; platform.system(); import failsoft; print(platform.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert is_stdlib(done.stdout.strip())


def test_the_packages_are_found_from_any_folder(tmp_path: Path) -> None:
    code = "import platform; platform.system(); import failsoft, serve_apps, train_jobs"
    subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, check=True)


@pytest.mark.usefixtures("ray_local")
def test_the_standard_library_wins_in_a_ray_worker() -> None:
    import ray

    assert is_stdlib(ray.get(ray.remote(num_cpus=0)(where_platform_comes_from).remote(), timeout=60))


@pytest.mark.usefixtures("ray_local")
def test_the_standard_library_wins_in_a_serve_replica() -> None:
    from ray import serve

    replica = serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 0})(WhereIsPlatform)
    handle = serve.run(replica.bind(), name="where-is-platform", route_prefix=None)
    try:
        assert is_stdlib(handle.where.remote().result(timeout_s=60))
    finally:
        serve.delete("where-is-platform")
