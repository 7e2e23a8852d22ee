"""Libraries that only some models need, and what a model is read from."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Protocol

from failsoft.errors import ConfigError


class Files(Protocol):
    """A verified release; ``failsoft.artifacts.bundle.Bundle`` is one."""

    @property
    def name(self) -> str:
        """Of the release."""
        ...

    def file(self, name: str, /) -> Path:
        """Where a file or folder of it lies; raises what :meth:`Bundle.file` does."""
        ...


def needed(module: str, *, extra: str) -> Any:
    """An optional library.

    Args:
        module: its name, such as ``onnxruntime``.
        extra: failsoft's extra that brings it.

    Raises:
        ConfigError: it is not installed, or does not load; with the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{module} can't be loaded ({error}); run: pip install 'failsoft[{extra}]'") from error
