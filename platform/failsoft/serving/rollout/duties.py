"""Background work that is begun when its owner is first asked anything, and begun anew when a bug has ended it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

Work = Callable[[], Coroutine[Any, Any, None]]


class Duties:
    """Of one event loop.

    Args:
        works: what goes on for ever, by name.
        failed: told in words of one that ended by a bug.
    """

    def __init__(self, works: Mapping[str, Work], failed: Callable[[str], object]) -> None:
        self._works, self._failed = works, failed
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_over = False

    def keep_going(self) -> None:
        """Have all of them running, unless they were stopped."""
        for name, work in () if self._is_over else self._works.items():
            task = self._tasks.get(name)
            if task is not None and task.done() and not task.cancelled():
                self._failed(f"{name} ended: {task.exception()!r}")
            if task is None or task.done():
                self._tasks[name] = asyncio.get_running_loop().create_task(work(), name=name)

    def stop(self) -> None:
        """End them for good."""
        self._is_over = True
        for task in self._tasks.values():
            task.cancel()
        self._tasks = {}
