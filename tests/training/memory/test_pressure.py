from __future__ import annotations

from pathlib import Path

import pytest
import torch

from failsoft.errors import ConfigError
from failsoft.training.memory.pressure import PressureGauge, Readings, host_limit, pressed
from failsoft.training.memory.rungs import MemoryPolicy
from failsoft.training.snapshots.host_memory import used_ram_fraction

POLICY = MemoryPolicy(max_host_used_fraction=0.9)
NAN = float("nan")


@pytest.mark.parametrize(
    ("readings", "on_host", "said"),
    [
        (Readings(), True, None),
        (Readings(host_used_fraction=0.9), True, None),
        (Readings(host_used_fraction=0.91), True, "host RAM"),
        (Readings(host_used_fraction=NAN), True, "host RAM"),
        (Readings(host_used_fraction=0.99), False, None),
        (Readings(address_space_fraction=0.95), True, "address space"),
        (Readings(device_free_fraction=0.05), False, None),
        (Readings(device_free_fraction=0.01), False, "left at the peak"),
        (Readings(device_free_fraction=NAN), False, "left at the peak"),
        (Readings(device_retries=2), False, "emptied its cache 2 times"),
    ],
)
def test_pressure_is_judged_from_readings_alone(readings: Readings, on_host: bool, said: str | None) -> None:
    verdict = pressed(readings, POLICY, host_limit=0.9, trains_on_host=on_host)
    assert verdict is None if said is None else said in str(verdict)


def test_the_limit_stays_below_where_rays_monitor_kills() -> None:
    policy = MemoryPolicy()
    assert host_limit(policy, {}) == pytest.approx(0.92)
    assert host_limit(policy, {"RAY_memory_usage_threshold": "0.8"}) == pytest.approx(0.77)
    assert host_limit(POLICY, {"RAY_memory_usage_threshold": "0.8"}) == 0.9


def test_a_threshold_that_is_no_share_is_refused() -> None:
    with pytest.raises(ConfigError, match="RAY_memory_usage_threshold is 'much'"):
        host_limit(MemoryPolicy(), {"RAY_memory_usage_threshold": "much"})


def machine(root: Path, *, total_kib: int, available_kib: int) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: {total_kib} kB\nMemAvailable: {available_kib} kB\n")
    return root


def test_the_machine_counts_where_no_group_is_limited(tmp_path: Path) -> None:
    assert used_ram_fraction(machine(tmp_path, total_kib=1000, available_kib=250)) == 0.75


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_is_as_full_as_its_group_and_file_cache_counts_as_free(tmp_path: Path, version: int) -> None:
    root = machine(tmp_path, total_kib=1_000_000, available_kib=900_000)
    line, folder = ("0::/job", "job") if version == 2 else ("4:memory:/job", "memory/job")
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    (root / "proc/self/cgroup").write_text(line + "\n")
    group = root / "sys/fs/cgroup" / folder
    group.mkdir(parents=True)
    for name, value in zip(names, (1000, 950), strict=True):
        (group / name).write_text(f"{value}\n")
    (group / "memory.stat").write_text("inactive_file 100\n" if version == 2 else "total_inactive_file 100\n")
    assert used_ram_fraction(root) == pytest.approx(0.85)


def test_a_system_that_says_nothing_reads_as_nothing(tmp_path: Path) -> None:
    assert used_ram_fraction(tmp_path) is None
    assert PressureGauge(torch.device("cpu"), tmp_path).read().host_used_fraction is None


def test_this_machine_can_be_read() -> None:
    used = PressureGauge(torch.device("cpu")).read().host_used_fraction
    assert used is None or 0.0 < used < 1.0
