"""A pyarrow file system on its way to the process that copies. It comes from the training by a socket of its own."""

from __future__ import annotations

import base64
import pickle
from typing import Any


def packed(filesystem: Any) -> str:
    """As text that :func:`unpacked` reads back."""
    return base64.b64encode(pickle.dumps(filesystem)).decode()


def unpacked(text: str) -> Any:
    """The file system. Only for the words of one's own parent: reading a pickle runs what is in it."""
    return pickle.loads(base64.b64decode(text))  # noqa: S301 -- from the process that started this one, by no file
