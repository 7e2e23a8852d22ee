"""Saves of the run are noticed, and its disk refuses or is slow: calls of the operating system as Python makes them.

Wrapped are opening, ``os.write``, syncing and renaming below the run's folder, and ``torch.save``, which writes past
Python. What a file that is already open is given by ``file.write`` is not.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from failsoft.drills.training.inside.course import Course, key_of
from failsoft.drills.training.inside.orders import Strike
from failsoft.drills.training.inside.trouble import DiskTrouble
from failsoft.health.clock import Clock

_WRITES = frozenset("wax+")
_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class DiskHooks:
    """Those of one process."""

    def __init__(self, course: Course, clock: Clock, act: Callable[[Strike], None]) -> None:
        self._course = course
        self._act = act
        self.trouble = DiskTrouble(course.marks, course.orders, clock)

    def install(self) -> None:
        """From here on saves are seen."""
        io.open = builtins.open = self._around_open(builtins.open)
        os.open = self._around_os_open(os.open)
        os.write = self._around_handle(os.write)
        for name in ("fsync", "fdatasync", "ftruncate"):
            setattr(os, name, self._around_handle(getattr(os, name)))
        for name in ("replace", "rename", "link"):
            setattr(os, name, self._around_rename(getattr(os, name)))
        for name in ("mkdir", "unlink", "rmdir"):
            setattr(os, name, self._around_path(getattr(os, name)))

    def around_torch_save(self, save: Callable[..., None]) -> Callable[..., None]:
        """``torch.save`` writes past Python: what is struck in the middle of it leaves half a file."""

        @functools.wraps(save)
        def noticed(content: Any, target: Any, *arguments: Any, **named: Any) -> None:
            path = self._inside(target if isinstance(target, str | os.PathLike) else getattr(target, "name", None))
            if path is None:
                save(content, target, *arguments, **named)
                return
            due = list(self._course.met_save("torch.save", path))
            if due or self.trouble.full:
                _half(save, content, target)
            for strike in due:
                self._act(strike)
            self.trouble.meet()
            save(content, target, *arguments, **named)
            self._tell("torch.save", path)

        return noticed

    def around_save_file(self, save: Callable[..., None]) -> Callable[..., None]:
        """``safetensors`` writes past Python, too: struck before it begins, since it writes aside by itself."""

        @functools.wraps(save)
        def noticed(tensors: Any, filename: Any, *arguments: Any, **named: Any) -> None:
            path = self._inside(filename)
            if path is not None:
                for strike in self._course.met_save("save_file", path):
                    self._act(strike)
                self.trouble.meet()
            save(tensors, filename, *arguments, **named)
            if path is not None:
                self._tell("save_file", path)

        return noticed

    def _around_open(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def noticed(file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            path = self._inside(file) if _WRITES & set(mode) else None
            if path is None:
                return call(file, mode, *arguments, **named)
            self.trouble.meet()
            opened = call(file, mode, *arguments, **named)
            if "w" in mode or "x" in mode:
                for strike in self._course.met_save("open", path):
                    self._act(strike)
                self._tell("open", path)
            return opened

        return noticed

    def _around_os_open(self, call: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(call)
        def noticed(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
            if flags & _FLAGS and self._inside(path) is not None:
                self.trouble.meet()
            return call(path, flags, *arguments, **named)

        return noticed

    def _around_handle(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def noticed(handle: Any, *arguments: Any) -> Any:
            if self.trouble.planned and self._inside(_path_of(handle)) is not None:
                self.trouble.meet()
            return call(handle, *arguments)

        return noticed

    def _around_rename(self, call: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(call)
        def noticed(source: Any, target: Any, *arguments: Any, **named: Any) -> None:
            path = self._inside(target)
            if path is not None:
                for strike in self._course.met_save("rename", path):
                    self._act(strike)
                self.trouble.meet()
            call(source, target, *arguments, **named)
            if path is not None:
                self._tell("rename", path)

        return noticed

    def _around_path(self, call: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(call)
        def noticed(path: Any, *arguments: Any, **named: Any) -> None:
            if self.trouble.planned and self._inside(path) is not None:
                self.trouble.meet(makes=call.__name__ == "mkdir")
            call(path, *arguments, **named)

        return noticed

    def _inside(self, file: Any) -> Path | None:
        """The path, where it is one below the run's folder."""
        if not isinstance(file, str | bytes | os.PathLike):
            return None
        text = os.path.abspath(os.fsdecode(file))
        return Path(text) if text.startswith(f"{self._course.orders.run}{os.sep}") else None

    def _tell(self, how: str, path: Path) -> None:
        """For the drill, which chooses from it where to strike. Small files count less."""
        key = key_of(how, path, self._course.orders.run)
        self._course.marks.say("save", key=key, path=str(path), bytes=_size(path), backwards=self._course.backwards)


def _path_of(handle: Any) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{handle if isinstance(handle, int) else handle.fileno()}")
    except (OSError, AttributeError):
        return None


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
        return path.stat().st_size
    except OSError:
        return 0


def _half(save: Callable[..., None], content: Any, target: Any) -> None:
    """The first half of the file, as a kill or a full disk in the middle leaves it."""
    whole = io.BytesIO()
    save(content, whole)
    half = whole.getvalue()[: len(whole.getvalue()) // 2]
    if isinstance(target, str | os.PathLike):
        Path(target).write_bytes(half)
    else:
        target.write(half)
        target.flush()
