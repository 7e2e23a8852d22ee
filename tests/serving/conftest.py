"""Coroutine tests run on asyncio, which is what the replicas run on."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop for tests marked ``anyio``."""
    return "asyncio"
