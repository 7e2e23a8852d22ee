"""A file system in memory that does what a test plans: refuses, tears what it writes, dies, or keeps less than it took.

``atomic`` is an object store: a file is there when its stream was closed, whole. Otherwise it grows as it is written,
as on a mounted disk.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow
from pyarrow import fs

from failsoft.artifacts.remote_place import Place

Plan = Callable[[int, str, str], None]
"""Called with the number of an operation, its kind and its path; raises what shall go wrong there."""


def as_planned(_number: int, _kind: str, _path: str) -> None:
    """Nothing goes wrong."""


@dataclass
class Disk:
    """What is stored; survives whoever writes to it."""

    files: dict[str, bytes] = field(default_factory=dict)
    folders: set[str] = field(default_factory=lambda: {"root"})

    def place(self, plan: Plan = as_planned, *, atomic: bool = True) -> Place:
        filesystem = fs.PyFileSystem(OddFiles(self, plan, atomic=atomic))
        return Place(filesystem=filesystem, root="root/run", shown="odd://root/run")


class Dies:
    """From operation ``at`` on everything fails, as for a process that is killed there: it cleans up no more."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0

    def __call__(self, number: int, kind: str, path: str) -> None:
        self.seen = number
        if number >= self.at:
            raise OSError(f"dead since operation {self.at}: {kind} {path}")


class OddFiles(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """See the module."""

    def __init__(self, disk: Disk, plan: Plan, *, atomic: bool) -> None:
        self.disk = disk
        self.plan = plan
        self.atomic = atomic
        self.number = 0

    def count(self, kind: str, path: str) -> None:
        self.number += 1
        self.plan(self.number, kind, path)

    def get_type_name(self) -> str:
        return "odd"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[Any]:
        self.count("stat", paths[0])
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        self.count("list", selector.base_dir)
        inside = f"{selector.base_dir}/"
        there = [path for path in (*self.disk.files, *self.disk.folders) if path.startswith(inside)]
        if not there and not selector.allow_not_found and selector.base_dir not in self.disk.folders:
            raise FileNotFoundError(selector.base_dir)
        return [self._info(path) for path in there if selector.recursive or "/" not in path[len(inside) :]]

    def create_dir(self, path: str, recursive: bool) -> None:
        self.count("mkdir", path)
        parts = path.split("/")
        self.disk.folders |= {"/".join(parts[: end + 1]) for end in range(len(parts))}

    def delete_dir(self, path: str) -> None:
        self.count("rmdir", path)
        for name in [name for name in self.disk.files if name.startswith(f"{path}/")]:
            self.count("rm", name)
            del self.disk.files[name]
        self.disk.folders = {name for name in self.disk.folders if name != path and not name.startswith(f"{path}/")}

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self.count("rm", path)
        if path not in self.disk.files:
            raise FileNotFoundError(path)
        del self.disk.files[path]

    def move(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def open_input_stream(self, path: str) -> Any:
        self.count("open", path)
        if path not in self.disk.files:
            raise FileNotFoundError(path)
        return pyarrow.PythonFile(io.BytesIO(self.disk.files[path]), mode="r")

    def open_input_file(self, path: str) -> Any:
        return self.open_input_stream(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self.count("create", path)
        if not self.atomic:
            self.disk.files[path] = b""
        return pyarrow.PythonFile(_Growing(self, path), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError

    def _info(self, path: str) -> Any:
        if path in self.disk.files:
            return fs.FileInfo(path, fs.FileType.File, size=len(self.disk.files[path]))
        return fs.FileInfo(path, fs.FileType.Directory if path in self.disk.folders else fs.FileType.NotFound)


class _Growing(io.RawIOBase):
    def __init__(self, files: OddFiles, path: str) -> None:
        self.files = files
        self.path = path
        self.content = b""

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        half = bytes(content)[: len(content) // 2]
        if not self.files.atomic:  # a kill within leaves a part
            self.files.disk.files[self.path] = self.content + half
        self.files.count("write", self.path)
        self.content += bytes(content)
        if not self.files.atomic:
            self.files.disk.files[self.path] = self.content
        return len(content)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.files.count("close", self.path)
            self.files.disk.files[self.path] = self.content
