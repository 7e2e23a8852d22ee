"""From an address to a file system: ``s3://``, ``gs://``, ``file://`` by pyarrow itself, all others by fsspec."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
import pyarrow
from pyarrow import fs

from failsoft.artifacts.address import hushed, refuse_address, shown
from failsoft.errors import ConfigError

_OWN_OF_ARROW = frozenset({"file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"})


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder on some file system."""

    filesystem: Any
    """A ``pyarrow.fs.FileSystem``."""
    root: str
    """Path of the folder on it; without a slash at its end."""
    shown: str
    """Its address, for messages and ledgers."""

    @property
    def has_folders(self) -> bool:
        """Whether a folder must be made before a file in it; object stores know only names with slashes in them."""
        return _base(self.filesystem).type_name not in {"s3", "gcs"}

    def below(self, *names: str) -> Place:
        """A folder below this one."""
        return Place(
            filesystem=self.filesystem, root="/".join((self.root, *names)), shown="/".join((self.shown, *names))
        )

    def settle(self, path: str) -> None:
        """Bring a file or folder safely to the disk, where this is a mounted file system; others do so themselves.

        Raises:
            OSError: the disk refused.
        """
        here = _path_here(self.filesystem, path)
        if here is not None:
            handle = os.open(here, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def place_of(url: str) -> Place:
    """The folder at an address. Nothing is made or asked yet.

    Raises:
        ConfigError: it is no address, or nothing here can speak to such a store.
    """
    refuse_address(url)
    scheme = urlsplit(url).scheme
    try:
        if scheme in _OWN_OF_ARROW:
            filesystem, root = fs.FileSystem.from_uri(url)
        else:
            foreign, root = fsspec.core.url_to_fs(url)
            filesystem = fs.PyFileSystem(fs.FSSpecHandler(foreign))
    except (pyarrow.ArrowException, ValueError, ImportError, NotImplementedError) as error:
        said = hushed(str(error), url)
        raise ConfigError(
            f"nothing here speaks to {shown(url)}: {said}; correct the address, or install the fsspec package for it"
        ) from error
    return Place(filesystem=filesystem, root=root.rstrip("/"), shown=shown(url))


def place_on(filesystem: Any, path: str) -> Place:
    """A folder on a file system that is there already.

    Args:
        filesystem: a ``pyarrow.fs.FileSystem``, as Ray's ``RunConfig(storage_filesystem=...)`` takes it.
        path: on it, without a scheme, as Ray's ``storage_path`` is then: ``bucket/prefix``.

    Raises:
        ConfigError: it is no such file system, or the path is empty or an address.
    """
    refuse_no_filesystem(filesystem)
    root = path.rstrip("/")
    if not root or "://" in root:
        raise ConfigError(
            f"storage_path is {path!r}; beside storage_filesystem give the path on that file system: bucket/prefix"
        )
    return Place(filesystem=filesystem, root=root, shown=f"{filesystem.type_name}://{root}")


def refuse_no_filesystem(given: Any) -> None:
    """Refuse what pyarrow does not take.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(given, fs.FileSystem):
        raise ConfigError(
            f"storage_filesystem is a {type(given).__name__}; give a pyarrow.fs.FileSystem, and wrap one of fsspec as "
            "pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(it))"
        )


def _base(filesystem: Any) -> Any:
    while isinstance(filesystem, fs.SubTreeFileSystem):
        filesystem = filesystem.base_fs
    return filesystem


def _path_here(filesystem: Any, path: str) -> Path | None:
    while isinstance(filesystem, fs.SubTreeFileSystem):
        path, filesystem = filesystem.base_path.rstrip("/") + "/" + path.lstrip("/"), filesystem.base_fs
    return Path(path) if isinstance(filesystem, fs.LocalFileSystem) else None
