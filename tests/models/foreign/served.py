"""The examples that serve models made elsewhere, and a release of loose files."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.errors import DamagedArtifactError
from failsoft.health.clock import SystemClock
from failsoft.serving.replicas.golden import check_golden
from failsoft.serving.task import AppSpec
from tests.serving.own_world import OwnWorld


def example(name: str) -> Any:
    """The module ``docs.NAME``, as ``failsoft serve --app docs.NAME:config`` imports it."""
    return importlib.import_module(f"docs.{name}")


@dataclass(frozen=True, kw_only=True)
class Loose:
    """Files in a folder, read as a release is."""

    folder: Path
    name: str = "r-loose"

    def file(self, name: str) -> Path:
        if not (self.folder / name).exists():
            raise DamagedArtifactError(f"release {self.name} has no {name}")
        return self.folder / name


def reopened(bundle: Bundle, home: Path) -> Bundle:
    """The same release, every byte of it verified against its digests."""
    return Bundle.of(Home.find(home).releases(SystemClock()).open(bundle.name))


def loads_as_recorded(config: AppSpec, bundle: Bundle) -> None:
    """What a replica does: load, and answer the golden inputs as when the release was made."""
    assert len(bundle.golden()) > 0
    check_golden(config.loader()(bundle), bundle, config.kind, bundle.measures())


def spoil(path: Path) -> None:
    """One byte in the middle of a file is another one."""
    path.chmod(0o644)
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 0xFF
    path.write_bytes(bytes(body))


async def answered(config: AppSpec, home: Path, body: Any) -> Any:
    """What a caller gets from a gateway's parts with the newest release, over HTTP."""
    return (await OwnWorld(config, home).post(body)).json()
