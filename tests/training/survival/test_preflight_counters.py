"""Counters of hardware, by texts in the form in which Linux and nvidia-smi give them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from failsoft.health.clock import SystemClock
from failsoft.training.survival.preflight import Outcome, PreflightPolicy
from failsoft.training.survival.preflight_counters import (
    GPU_ECC,
    added,
    ask,
    gpu_links,
    gpu_log,
    gpu_memory,
    host_memory_errors,
    node_links,
)
from failsoft.training.survival.preflight_node import Look, look_around

SOUND_GPUS = "0, 0, No, No\n1, 0, No, No\n"
LINKS = """GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-9b5b1d6a-0d2c-7c43-0e5f-3f0d2a1c9e10)
\t Link 0: Replay Errors: {replay}
\t Link 0: Recovery Errors: {recovery}
\t Link 0: CRC Errors: 0
\t Link 0: Tx Packets: 123456
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-aa5b1d6a-0d2c-7c43-0e5f-3f0d2a1c9e11)
\t Link 0: Replay Errors: 0
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: 0
"""
LOG = """[    1.2] nvidia: loading out-of-tree module taints kernel.
[ 9034.7] NVRM: Xid (PCI:0000:3b:00): 31, pid=7194, name=python, Ch 00000008, intr 00000000. MMU Fault
"""
OFF_THE_BUS = "[11034.7] NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


def port(root: Path, *, down: int = 0, symbols: int = 0, state: str = "4: ACTIVE") -> None:
    folder = root / "sys/class/infiniband/mlx5_0/ports/1"
    (folder / "counters").mkdir(parents=True, exist_ok=True)
    (folder / "state").write_text(f"{state}\n", "utf-8")
    (folder / "counters" / "link_downed").write_text(f"{down}\n", "utf-8")
    (folder / "counters" / "symbol_error").write_text(f"{symbols}\n", "utf-8")


def test_only_what_was_added_since_the_last_look_counts_and_a_restarted_counter_counts_as_it_stands() -> None:
    assert added({"new": 9, "same": 4, "more": 7, "restarted": 3}, {"same": 4, "more": 5, "restarted": 90}) == {
        "more": 2,
        "restarted": 3,
    }


def test_the_first_look_at_a_link_only_notes_its_totals(tmp_path: Path) -> None:
    port(tmp_path, down=7, symbols=5000)
    found = node_links({}, 10, tmp_path)
    assert found.outcome is Outcome.PASSED
    assert found.counters == {"mlx5_0/1 link_downed": 7, "mlx5_0/1 symbol_error": 5000}


@pytest.mark.parametrize(
    ("down", "symbols", "outcome"), [(7, 5010, Outcome.PASSED), (7, 5011, Outcome.FAILED), (8, 5000, Outcome.FAILED)]
)
def test_a_link_that_went_down_or_gained_many_errors_since_then_fails(
    tmp_path: Path, down: int, symbols: int, outcome: Outcome
) -> None:
    port(tmp_path, down=down, symbols=symbols)
    found = node_links({"mlx5_0/1 link_downed": 7, "mlx5_0/1 symbol_error": 5000}, 10, tmp_path)
    assert found.outcome is outcome
    assert found.counters["mlx5_0/1 link_downed"] == down


def test_a_port_that_is_not_in_use_is_no_link(tmp_path: Path) -> None:
    port(tmp_path, down=99, state="1: DOWN")
    assert node_links({"mlx5_0/1 link_downed": 0}, 10, tmp_path).outcome is Outcome.NOT_HERE
    assert node_links({}, 10, tmp_path / "elsewhere").outcome is Outcome.NOT_HERE


def test_an_error_that_the_host_memory_could_not_correct_fails(tmp_path: Path) -> None:
    assert host_memory_errors({}, tmp_path).outcome is Outcome.NOT_HERE
    controller = tmp_path / "sys/devices/system/edac/mc/mc0"
    controller.mkdir(parents=True)
    (controller / "ue_count").write_text("2\n", "utf-8")
    first = host_memory_errors({}, tmp_path)
    assert first.outcome is Outcome.PASSED
    (controller / "ue_count").write_text("3\n", "utf-8")
    found = host_memory_errors(first.counters, tmp_path)
    assert (found.outcome, found.why) == (Outcome.FAILED, "mc0 ue_count +1 since the last look")


@pytest.mark.parametrize(
    ("text", "outcome", "said"),
    [
        (SOUND_GPUS, Outcome.PASSED, "2 counters"),
        ("0, 4, No, No\n1, 0, No, No\n", Outcome.FAILED, "GPU 0 uncorrected +4"),
        ("0, 0, Yes, No\n1, 0, No, No\n", Outcome.FAILED, "GPU 0: a row of its memory waits to be remapped: reset it"),
        ("0, 0, No, No\n1, 0, No, Yes\n", Outcome.FAILED, "GPU 1: a row of its memory could not be remapped"),
        ("0, [N/A], [N/A], [N/A]\n", Outcome.NOT_HERE, "no ECC"),
        ("No devices were found\n", Outcome.FAILED, "No devices were found"),
        ("", Outcome.FAILED, "does it see the GPUs"),
    ],
)
def test_the_memory_of_gpus_is_judged_by_new_errors_and_by_flags(text: str, outcome: Outcome, said: str) -> None:
    found = gpu_memory(text, {"GPU 0 uncorrected": 0, "GPU 1 uncorrected": 0})
    assert found.outcome is outcome
    assert said in found.why


@pytest.mark.parametrize(
    ("replay", "recovery", "outcome"), [(10, 0, Outcome.PASSED), (11, 0, Outcome.FAILED), (0, 1, Outcome.FAILED)]
)
def test_links_between_gpus_may_replay_a_little_and_never_recover(replay: int, recovery: int, outcome: Outcome) -> None:
    first = gpu_links(LINKS.format(replay=0, recovery=0), {}, 10)
    assert (first.outcome, len(first.counters)) == (Outcome.PASSED, 6)
    found = gpu_links(LINKS.format(replay=replay, recovery=recovery), first.counters, 10)
    assert found.outcome is outcome


def test_gpus_without_links_have_none() -> None:
    assert gpu_links("GPU 0: NVIDIA T4 (UUID: GPU-1)\n", {}, 10).outcome is Outcome.NOT_HERE


def test_a_message_of_the_driver_about_the_machine_fails_once_and_one_about_a_program_never() -> None:
    first = gpu_log(LOG, {})
    assert first.outcome is Outcome.PASSED
    found = gpu_log(LOG + OFF_THE_BUS, first.counters)
    assert (found.outcome, found.why) == (Outcome.FAILED, "XID 79 since the last look")
    assert gpu_log(LOG + OFF_THE_BUS, found.counters).outcome is Outcome.PASSED


def test_a_kernel_log_that_forgot_its_beginning_tells_nothing_twice_and_one_of_a_restarted_machine_is_all_new() -> None:
    later = "[12000.0] eth0: link is up\n"
    before = gpu_log(OFF_THE_BUS + OFF_THE_BUS + later, {}).counters
    assert gpu_log(OFF_THE_BUS + later, before).outcome is Outcome.PASSED
    assert gpu_log(OFF_THE_BUS, before).outcome is Outcome.FAILED


def test_a_command_that_is_not_installed_or_refuses_says_nothing() -> None:
    assert ask("no-such-command-anywhere") is None
    assert ask("false") is None
    assert ask("echo", "here") == "here\n"


def tool(folder: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """An nvidia-smi that ends so."""
    made = folder / "nvidia-smi"
    made.write_text(f"#!/bin/sh\necho 'Unable to determine the device handle for GPU' >&2\nexit {status}\n", "utf-8")
    made.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize("status", [8, 10, 15])
def test_a_gpu_that_the_system_says_is_lost_fails_and_is_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    tool(tmp_path, monkeypatch, status)
    quick = PreflightPolicy(matmul_s=0.001, memory_pattern_bytes=0)
    look = Look(node="a", folder=tmp_path, need_disk_bytes=0, policy=quick)
    found = {one.probe: one for one in look_around(look, SystemClock())}
    assert found[GPU_ECC].outcome is Outcome.FAILED
    assert "device handle" in found[GPU_ECC].why


@pytest.mark.parametrize("status", [9, 12, 255])
def test_a_machine_without_a_driver_has_no_gpu_to_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    tool(tmp_path, monkeypatch, status)
    assert ask("nvidia-smi", "-L") is None
