"""More routes on a gateway's app, from packages that stand above serving: named, and imported in the replica."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.serving.task import imported

CONSOLE = "failsoft.console.routes:mount"
CONSOLE_WITH_TOKEN = "failsoft.console.routes:mount_for_readers"  # noqa: S105 -- a function's name, no secret


@dataclass(frozen=True, kw_only=True)
class Mounted:
    """What such routes may know of the replica."""

    home: Home
    status: Callable[[], dict[str, Any]]
    rollout: Callable[[], Awaitable[dict[str, Any]]]
    operator: Callable[[str | None], None]
    """Raises NotAuthorizedError unless the ``Authorization`` header is the operator's."""


def console_mounts(is_shown: bool, *, needs_token: bool) -> tuple[str, ...]:  # noqa: FBT001 -- the setting's own name
    """What an app mounts for its console."""
    if not is_shown:
        return ()
    return (CONSOLE_WITH_TOKEN if needs_token else CONSOLE,)


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
