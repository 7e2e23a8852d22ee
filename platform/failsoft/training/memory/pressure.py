"""Whether memory grows short before anything failed: on the device, on the host, and for Ray's memory monitor.

Ray kills a worker when its node (or container) is used above ``RAY_memory_usage_threshold``, 0.95 unless set; the
kernel does so at the control group's limit; the CUDA allocator empties its cache and tries again, which is slow, just
before it gives up. Each is seen a little earlier here. Readings and judgement are apart.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from failsoft.errors import ConfigError
from failsoft.training.memory.rungs import MemoryPolicy
from failsoft.training.snapshots.host_memory import used_ram_fraction

RAY_THRESHOLD = "RAY_memory_usage_threshold"
RAY_DEFAULT = 0.95
"""Of Ray 2.60."""
MARGIN = 0.03
"""So far below Ray's threshold the ladder moves: the monitor looks every 250 ms, the ladder once in many batches."""


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What was found at one look; None where there is nothing to read."""

    host_used_fraction: float | None = None
    """Of the tightest of machine and control groups."""
    address_space_fraction: float | None = None
    """Of this process's ``RLIMIT_AS``."""
    device_free_fraction: float | None = None
    """What the passes left of the device's memory at their peak, others' use counted as it is now."""
    device_retries: int = 0
    """Times since the last look that the allocator had to empty its cache to go on."""


def pressed(readings: Readings, policy: MemoryPolicy, *, host_limit: float, trains_on_host: bool) -> str | None:
    """What is short, in words; None when nothing is. Nothing read is no good news, but no reason to move either.

    Args:
        readings: of one look.
        policy: the limits.
        host_limit: share of the host's memory that may be used.
        trains_on_host: whether activations lie in host RAM; smaller passes free nothing there otherwise.
    """
    if readings.device_retries:
        return f"the device's allocator emptied its cache {readings.device_retries} times to go on"
    left = readings.device_free_fraction
    if left is not None and not left >= policy.min_device_free_fraction:
        return (
            f"{left:.1%} of the device's memory were left at the peak, at least {policy.min_device_free_fraction:.1%}"
        )
    if not trains_on_host:
        return None
    used = {"host RAM": readings.host_used_fraction, "address space": readings.address_space_fraction}
    for name, fraction in used.items():
        if fraction is not None and not fraction <= host_limit:
            return f"{fraction:.1%} of the {name} are used, at most {host_limit:.1%}"
    return None


def host_limit(policy: MemoryPolicy, environment: Mapping[str, str] = os.environ) -> float:
    """The policy's own limit, else a little below where Ray's monitor kills.

    Raises:
        ConfigError: Ray's variable holds no share.
    """
    if policy.max_host_used_fraction is not None:
        return policy.max_host_used_fraction
    word = environment.get(RAY_THRESHOLD, "")
    try:
        threshold = float(word) if word else RAY_DEFAULT
    except ValueError as error:
        raise ConfigError(f"{RAY_THRESHOLD} is {word!r}; set it to a share such as 0.95, or unset it") from error
    return max(threshold - MARGIN, 0.0)


class PressureGauge:
    """Reads this process's bounds.

    Args:
        device: where the model is.
        root: folder that holds ``proc`` and ``sys``.
    """

    def __init__(self, device: torch.device, root: Path = Path("/")) -> None:
        self._device = device
        self._root = root
        self._retries = 0

    def read(self) -> Readings:
        """One look; some ten microseconds of small files, and no wait for the device."""
        left, retries = self._of_device() if self._device.type == "cuda" else (None, 0)
        return Readings(
            host_used_fraction=used_ram_fraction(self._root),
            address_space_fraction=_address_space(self._root),
            device_free_fraction=left,
            device_retries=retries,
        )

    def settle(self) -> None:
        """The work is another from now on: peaks of the old say nothing of it."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

    def _of_device(self) -> tuple[float, int]:
        stats = torch.cuda.memory_stats(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        now, held = stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"]
        needed = stats["allocated_bytes.all.peak"] - now
        retries, self._retries = stats["num_alloc_retries"] - self._retries, stats["num_alloc_retries"]
        return (free + held - now - needed) / total, retries


def _address_space(root: Path) -> float | None:
    limit, _hard = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        pages = int((root / "proc/self/statm").read_text("utf-8").split()[0])
    except (OSError, ValueError):
        return None
    return pages * resource.getpagesize() / limit
