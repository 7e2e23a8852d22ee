"""Samples through pyarrow's file systems, which bring their own S3, GCS and HDFS clients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyarrow import fs


@dataclass(frozen=True, kw_only=True)
class ArrowReader:
    """Reads below any URI that pyarrow knows: ``s3://bucket/path?region=…``, ``gs://``, ``hdfs://``, ``file:///``."""

    uri: str

    def read(self, path: str, *, first: int, length: int) -> bytes:
        """A ranged read."""
        filesystem, root = self._opened
        with filesystem.open_input_file(f"{root.rstrip('/')}/{path}") as file:
            return bytes(file.read_at(length, first))

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        filesystem, root = fs.FileSystem.from_uri(self.uri)
        return filesystem, str(root)

    def __getstate__(self) -> dict[str, Any]:
        return {"uri": self.uri}  # a connection does not outlive the way to another process
