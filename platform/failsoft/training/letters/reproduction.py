"""What one needs to meet an anomaly again: state, config, code, seeds, data, device and memory, as data of its event.

A record is small (``MAX_RECORD_BYTES`` of JSON at most, whatever the run) and is made on the rare path only. Sizes are
bytes; what this machine can't tell is None, not 0.
"""

from __future__ import annotations

import json
import platform
import resource
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from failsoft.artifacts.manifest import digest_bytes
from failsoft.training.checkpoints.checkpoint import versions

MAX_RECORD_BYTES = 8 * 1024
"""Far below ``health.ledger.MAX_EVENT_BYTES``, so that the event around it never has to drop it."""
_MAX_IDS = 64
_MAX_TEXT = 200


@dataclass(frozen=True, kw_only=True)
class DeviceState:
    """What the device is, and how full."""

    name: str
    allocated_bytes: int | None = None
    """In tensors; CUDA only, like the next three."""
    reserved_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    total_bytes: int | None = None

    @classmethod
    def of(cls, device: torch.device) -> DeviceState:
        """Look now."""
        if device.type != "cuda":
            return cls(name=platform.processor() or platform.machine())
        return cls(
            name=torch.cuda.get_device_name(device),
            allocated_bytes=torch.cuda.memory_allocated(device),
            reserved_bytes=torch.cuda.memory_reserved(device),
            peak_allocated_bytes=torch.cuda.max_memory_allocated(device),
            total_bytes=torch.cuda.get_device_properties(device).total_memory,
        )


@dataclass(frozen=True, kw_only=True)
class HostState:
    """This process and the machine around it."""

    process_bytes: int | None
    """Resident memory now."""
    process_peak_bytes: int
    available_bytes: int | None
    """That the machine could still give."""
    group_bytes: int | None
    """Used by this process's control group (a container)."""
    group_limit_bytes: int | None
    """Above this the kernel kills; None without a limit."""

    @classmethod
    def now(cls, root: Path = Path("/")) -> HostState:
        """Look now; ``root`` is where ``proc`` and ``sys`` lie."""
        unit = 1 if sys.platform == "darwin" else 1024
        return cls(
            process_bytes=_resident_bytes(root / "proc/self/statm"),
            process_peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
            available_bytes=_available_bytes(root / "proc/meminfo"),
            group_bytes=_first_number(root, "memory.current", "memory/memory.usage_in_bytes"),
            group_limit_bytes=_first_number(root, "memory.max", "memory/memory.limit_in_bytes"),
        )


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Makes the records of one rank of one run."""

    config_digest: str
    """Of the run's identity; ``run_started`` in the ledger has the same."""
    seed: int | None
    rank: int = 0
    world: int = 1
    device: torch.device | None = None
    """None: the CPU."""

    def record(
        self,
        *,
        sample_ids: Sequence[int] = (),
        model_digest: str | None = None,
        generators_digest: str | None = None,
    ) -> dict[str, Any]:
        """One record, as small JSON.

        Args:
            sample_ids: this rank's share of the batch; the first 64 are named, all are digested.
            model_digest: of the tensors that the batch met.
            generators_digest: of torch's generators before the batch.
        """
        record = {
            "model_digest": model_digest,
            "config_digest": self.config_digest,
            "versions": versions() | {"cuda": torch.version.cuda},
            "seed": self.seed,
            "rank": self.rank,
            "world": self.world,
            "samples": samples_in_brief(sample_ids),
            "generators_digest": generators_digest,
            "device": asdict(DeviceState.of(self.device or torch.device("cpu"))),
            "host": asdict(HostState.now()),
            "threads": torch.get_num_threads(),
            "settings": _settings(),
        }
        return bounded(record)


def samples_in_brief(sample_ids: Sequence[int]) -> dict[str, Any]:
    """How many samples, the first 64 of them, and a digest of all in order."""
    ids = [int(sample) for sample in sample_ids]
    return {"count": len(ids), "first": ids[:_MAX_IDS], "digest": digest_bytes(json.dumps(ids).encode())}


def bounded(record: dict[str, Any]) -> dict[str, Any]:
    """The record in at most ``MAX_RECORD_BYTES`` of JSON: long texts are cut, then the largest parts become notes."""
    small = {key: value[:_MAX_TEXT] if isinstance(value, str) else value for key, value in record.items()}
    while _size(small) > MAX_RECORD_BYTES:
        largest = max(small, key=lambda key: _size(small[key]))
        small[largest] = f"left out: {_size(small[largest])} bytes"
    return small


def _settings() -> dict[str, Any]:
    """Switches of torch that change bits."""
    return {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "default_dtype": str(torch.get_default_dtype()),
    }


def _size(value: Any) -> int:
    return len(json.dumps(value, default=str))


def _resident_bytes(statm: Path) -> int | None:
    try:
        return int(statm.read_text("ascii").split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None


def _available_bytes(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text("ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _first_number(root: Path, *names: str) -> int | None:
    """The first of these files of the control group that holds a number; "max" is none, nor is a number without end."""
    for name in names:
        try:
            number = int((root / "sys/fs/cgroup" / name).read_text("ascii"))
        except (OSError, ValueError):
            continue
        return number if number < 2**60 else None
    return None
