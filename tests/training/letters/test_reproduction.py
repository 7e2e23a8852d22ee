from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from failsoft.health.ledger import MAX_EVENT_BYTES
from failsoft.training.letters.reproduction import (
    MAX_RECORD_BYTES,
    DeviceState,
    HostState,
    Reproduction,
    bounded,
    samples_in_brief,
)


def test_a_record_names_state_config_code_seed_data_device_and_memory() -> None:
    made = Reproduction(config_digest="c", seed=7, rank=1, world=2).record(
        sample_ids=[4, 5], model_digest="m", generators_digest="g"
    )
    assert (made["model_digest"], made["config_digest"], made["seed"], made["generators_digest"]) == ("m", "c", 7, "g")
    assert (made["rank"], made["world"], made["threads"]) == (1, 2, torch.get_num_threads())
    assert made["versions"]["torch"] == torch.__version__
    assert made["versions"]["failsoft"].startswith("blake3:")
    assert (made["samples"]["count"], made["samples"]["first"]) == (2, [4, 5])
    assert made["device"]["name"]
    assert made["host"]["process_bytes"] > 10_000_000


def test_a_record_of_a_huge_batch_stays_small_and_still_names_it() -> None:
    made = Reproduction(config_digest="c", seed=7).record(sample_ids=range(1_000_000))
    assert len(json.dumps(made)) <= MAX_RECORD_BYTES < MAX_EVENT_BYTES
    assert made["samples"] == samples_in_brief(range(1_000_000))
    assert made["samples"]["digest"] != samples_in_brief(range(999_999))["digest"]


def test_what_would_be_too_large_is_left_out_and_said() -> None:
    made = bounded({"seed": 7, "versions": {str(number): "x" * 100 for number in range(1000)}, "why": "y" * 10_000})
    assert made["seed"] == 7
    assert str(made["versions"]).startswith("left out")
    assert len(made["why"]) == 200
    assert len(json.dumps(made)) <= MAX_RECORD_BYTES


@pytest.mark.parametrize("v1", [True, False])
def test_the_limits_of_a_container_are_read_in_both_forms(tmp_path: Path, v1: bool) -> None:
    group = tmp_path / "sys/fs/cgroup" / ("memory" if v1 else ".")
    group.mkdir(parents=True)
    (group / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text("4096\n", "ascii")
    (group / ("memory.usage_in_bytes" if v1 else "memory.current")).write_text("1024\n", "ascii")
    host = HostState.now(tmp_path)
    assert (host.group_limit_bytes, host.group_bytes) == (4096, 1024)
    assert (host.process_bytes, host.available_bytes) == (None, None)


def test_no_limit_is_none_and_not_a_number(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n", "ascii")
    assert HostState.now(tmp_path).group_limit_bytes is None


def test_the_machines_free_memory_is_read(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  2 kB\n", "ascii")
    assert HostState.now(tmp_path).available_bytes == 2048


@pytest.mark.cuda
def test_a_gpus_memory_is_told() -> None:
    held = torch.zeros(1024, device="cuda")
    told = DeviceState.of(held.device)
    assert told.allocated_bytes is not None
    assert told.total_bytes is not None
    assert 4096 <= told.allocated_bytes < told.total_bytes
