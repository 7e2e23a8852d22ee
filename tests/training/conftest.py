from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from failsoft.training.snapshots.host_memory import HOST_MEMORY_VARIABLE


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny models gain nothing from more threads, and lose much when the cores are busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def host_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for ``/dev/shm``; snapshots of runs that are built from now on outlive their worker there."""
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setenv(HOST_MEMORY_VARIABLE, str(folder))
    return folder
