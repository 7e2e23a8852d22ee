"""More routes on a gateway's app, from packages that stand above serving: named, and imported in the replica."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.serving.task import imported
from failsoft.serving.web.auth import Guards

CONSOLE = "failsoft.console.routes:mount"


@dataclass(frozen=True, kw_only=True)
class Mounted:
    """What such routes may know of the replica."""

    home: Home
    status: Callable[[], dict[str, Any]]
    rollout: Callable[[], Awaitable[dict[str, Any]]]
    guards: Guards
    """Who may order, and who may read."""


def console_mounts(*, is_shown: bool) -> tuple[str, ...]:
    """What an app mounts for its console."""
    return (CONSOLE,) if is_shown else ()


def mount_all(app: FastAPI, paths: Sequence[str], mounted: Mounted) -> None:
    """Call each ``package.module:function`` with the app and the replica.

    Raises:
        ConfigError: there is none of that name, or it can't be called.
    """
    for path in paths:
        mount = imported(path)
        if not callable(mount):
            raise ConfigError(f"{path} is a {type(mount).__name__}; name a function of an app and a replica")
        mount(app, mounted)
