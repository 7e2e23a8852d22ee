"""Counters that hardware keeps of its own errors: memory of host and GPU, links between GPUs, links between nodes.

Totals say little, for they began with the machine; what was added since the run's last look is the run's own. The first
look therefore only notes them. Flags are judged at once: a GPU that could not remap a bad row of its memory is to be
returned to its maker, one with a remapping pending must be reset first (NVIDIA, "GPU memory error management").
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from failsoft.errors import TrainingError
from failsoft.training.survival.preflight import Finding, failed, not_here, passed

HOST_ECC = "host ECC"
GPU_ECC = "GPU memory"
GPU_LOG = "GPU log (XID)"
GPU_LINKS = "GPU links"
NODE_LINKS = "InfiniBand"

GPU_QUERY = ("index", "ecc.errors.uncorrected.volatile.total", "remapped_rows.pending", "remapped_rows.failure")
"""Columns of ``nvidia-smi --query-gpu=… --format=csv,noheader,nounits``."""
_COMMAND_S = 10.0
_GPU_TOOL = "nvidia-smi"
_ILL_GPU = {
    8: "a power cable of a GPU is not attached",
    10: "the kernel has an interrupt issue with a GPU",
    15: "a GPU has fallen off the bus, or can't be reached",
}
"""Exit statuses of nvidia-smi (its manual, "RETURN VALUE"). Others, as 9 (no driver), say that there is none to ask."""
_FATAL_XIDS = frozenset({48, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140})
"""NVIDIA, "XID errors": memory (48, 63, 64, 92, 94, 95, 140), NVLink (74), off the bus (79), GSP (119, 120). Those that
a user's code can raise by itself (13, 31, 43, 45) say nothing of the machine."""
_LOG_END = "kernel log end_us"
_LINK_DOWN = "link_downed"
_LINK_ERRORS = (
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
"""Files in ``/sys/class/infiniband/*/ports/*/counters`` (Linux, Documentation/ABI/stable/sysfs-class-infiniband)."""


def added(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """What each counter gained since the last look.

    One without a last look gained nothing that we know of; one that is lower than then began anew (a restart of the
    machine), and gained all that it shows.
    """
    gained = {
        name: total - before[name] if total >= before[name] else total for name, total in now.items() if name in before
    }
    return {name: count for name, count in gained.items() if count > 0}


def judge_counters(
    probe: str, now: Mapping[str, int], before: Mapping[str, int], allowed: Mapping[str, int]
) -> Finding:
    """Failed when a counter gained more than allowed; ``allowed`` goes by the counter's last word, 0 for all others."""
    over = {
        name: count for name, count in added(now, before).items() if count > allowed.get(name.rpartition(" ")[2], 0)
    }
    if over:
        gained = ", ".join(f"{name} +{count}" for name, count in sorted(over.items()))
        return failed(probe, f"{gained} since the last look", now)
    return passed(probe, f"{len(now)} counters, {sum(name in before for name in now)} of them seen before", now)


def host_memory_errors(before: Mapping[str, int], root: Path = Path("/")) -> Finding:
    """Errors that the host's memory could not correct, by the kernel's EDAC drivers."""
    found = {
        f"{path.parent.name} ue_count": int(path.read_text("utf-8"))
        for path in sorted((root / "sys/devices/system/edac/mc").glob("mc*/ue_count"))
    }
    return judge_counters(HOST_ECC, found, before, {}) if found else not_here(HOST_ECC, "no EDAC driver is loaded")


def node_links(before: Mapping[str, int], max_new_errors: int, root: Path = Path("/")) -> Finding:
    """Ports of InfiniBand (or RoCE) on this node: those that are in use, and their errors since the last look."""
    found: dict[str, int] = {}
    for port in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        if "ACTIVE" in (port / "state").read_text("utf-8"):
            device = f"{port.parent.parent.name}/{port.name}"
            found |= {f"{device} {name}": count for name, count in _port_counters(port / "counters").items()}
    if not found:
        return not_here(NODE_LINKS, "no active port")
    return judge_counters(NODE_LINKS, found, before, dict.fromkeys(_LINK_ERRORS, max_new_errors))


def _port_counters(folder: Path) -> dict[str, int]:
    files = {name: folder / name for name in (_LINK_DOWN, *_LINK_ERRORS)}
    return {name: int(file.read_text("utf-8")) for name, file in files.items() if file.exists()}


def gpu_memory(text: str, before: Mapping[str, int]) -> Finding:
    """Judge what ``nvidia-smi`` says of :data:`GPU_QUERY`; columns that a GPU does not have read ``[N/A]``."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    broken = [row for row in rows if len(row) != len(GPU_QUERY)]
    if broken or not rows:
        return failed(GPU_ECC, f"nvidia-smi answers {text.strip()[:200]!r}; does it see the GPUs?")
    flagged = [f"GPU {index}: {flag}" for index, _, *flags in rows for flag in _flags(*flags)]
    counters = {f"GPU {index} uncorrected": int(count) for index, count, *_ in rows if count.isdecimal()}
    if flagged:
        return failed(GPU_ECC, "; ".join(flagged), counters)
    if not counters:
        return not_here(GPU_ECC, "these GPUs have no ECC, or it is switched off")
    return judge_counters(GPU_ECC, counters, before, {})


def _flags(pending: str, failure: str) -> list[str]:
    said = {
        "a row of its memory could not be remapped: have it replaced": failure,
        "a row of its memory waits to be remapped: reset it (nvidia-smi --gpu-reset) or restart the machine": pending,
    }
    return [words for words, value in said.items() if value.lower() in {"yes", "1"}]


def gpu_links(text: str, before: Mapping[str, int], max_new_errors: int) -> Finding:
    """Judge the error counters of ``nvidia-smi nvlink --errorcounters``."""
    gpu, found = "GPU ?", {}
    for line in text.splitlines():
        head = re.match(r"\s*(GPU \d+):", line)
        gpu = head.group(1) if head else gpu
        count = re.match(r"\s*Link (\d+): (Replay|Recovery|CRC) Errors: (\d+)\s*$", line)
        if count:
            found[f"{gpu} link {count.group(1)} {count.group(2).lower()}"] = int(count.group(3))
    if not found:
        return not_here(GPU_LINKS, "no NVLink")
    return judge_counters(GPU_LINKS, found, before, {"replay": max_new_errors, "crc": max_new_errors})


def gpu_log(text: str, before: Mapping[str, int]) -> Finding:
    """Judge the XID messages in the kernel's log that speak of the machine: one since the last look fails.

    Lines begin with the time since the machine started, so a log that is younger than the last look is all new.
    """
    stamps = [int(float(said) * 1e6) for said in re.findall(r"^\[ *(\d+\.\d+)\]", text, re.MULTILINE)]
    now, since = {_LOG_END: max(stamps, default=0)}, before.get(_LOG_END)
    if since is None:
        return passed(GPU_LOG, "noted where it ends", now)
    begun_us = since if now[_LOG_END] >= since else -1
    told = re.findall(r"^\[ *(\d+\.\d+)\] NVRM: Xid \([^)]*\): (\d+)", text, re.MULTILINE)
    new = [number for stamp, number in told if int(number) in _FATAL_XIDS and int(float(stamp) * 1e6) > begun_us]
    if new:
        return failed(GPU_LOG, f"XID {', '.join(new)} since the last look", now)
    return passed(GPU_LOG, "nothing about the machine since the last look", now)


def ask(*command: str) -> str | None:
    """What a command of the system prints; None where it is not installed or may not be asked.

    Raises:
        subprocess.TimeoutExpired: it hangs, as nvidia-smi does on a GPU that fell off the bus.
        TrainingError: nvidia-smi says by its exit status that a GPU is ill.
    """
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    if command[0] == _GPU_TOOL and done.returncode in _ILL_GPU:
        said = " ".join((done.stderr or done.stdout).split())[:300]
        raise TrainingError(f"{_GPU_TOOL}: {_ILL_GPU[done.returncode]} (exit status {done.returncode}): {said}")
    return done.stdout if done.returncode == 0 else None
