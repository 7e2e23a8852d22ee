"""What is looked at on one node, in which order: the disk last, for it alone can keep one waiting for ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from failsoft.health.clock import Clock
from failsoft.training.survival.preflight import Finding, PreflightPolicy, Probe, carry_out, not_here
from failsoft.training.survival.preflight_compute import MATMUL, MEMORY, known_answer, memory_pattern
from failsoft.training.survival.preflight_counters import (
    GPU_ECC,
    GPU_LINKS,
    GPU_LOG,
    GPU_QUERY,
    HOST_ECC,
    NODE_LINKS,
    ask,
    gpu_links,
    gpu_log,
    gpu_memory,
    host_memory_errors,
    node_links,
)
from failsoft.training.survival.preflight_faults import NodeFaultKind, Struck
from failsoft.training.survival.preflight_host import DISK, RAM, SPACE, disk_answers, memory_is_left, space_is_left


@dataclass(frozen=True, kw_only=True)
class Look:
    """What to look at; small and picklable, for it travels to the node."""

    node: str
    folder: Path
    """The run's."""
    need_disk_bytes: int
    policy: PreflightPolicy = field(default_factory=PreflightPolicy)
    before: Mapping[str, int] = field(default_factory=dict)
    """Counters at the last look."""
    turn: int = 0
    """How often the run has looked before."""
    faults: Struck = field(default_factory=Struck)


def look_around(look: Look, clock: Clock) -> tuple[Finding, ...]:
    """All probes of the node that this process runs on; GPUs only by what the system says of them."""
    look.faults.stand_still(NodeFaultKind.NO_ANSWER)
    return carry_out(_probes(look, clock), clock)


def _probes(look: Look, clock: Clock) -> dict[str, Probe]:
    policy, before, max_new = look.policy, look.before, look.policy.max_new_link_errors
    return {
        MATMUL: lambda: known_answer(policy.matmul_s, clock, turn=look.turn, flaw=look.faults.flaw),
        MEMORY: lambda: memory_pattern(policy.memory_pattern_bytes),
        RAM: lambda: memory_is_left(policy.min_free_memory_bytes),
        HOST_ECC: lambda: host_memory_errors(before),
        NODE_LINKS: lambda: node_links(before, max_new),
        GPU_ECC: lambda: _gpu_memory(before),
        GPU_LINKS: lambda: _gpu_links(before, max_new),
        GPU_LOG: lambda: _gpu_log(before),
        SPACE: lambda: space_is_left(look.folder, look.need_disk_bytes),
        DISK: lambda: disk_answers(look.folder, look.node, clock, look.faults.write),
    }


def _gpu_memory(before: Mapping[str, int]) -> Finding:
    text = ask("nvidia-smi", f"--query-gpu={','.join(GPU_QUERY)}", "--format=csv,noheader,nounits")
    return not_here(GPU_ECC, "no nvidia-smi that answers") if text is None else gpu_memory(text, before)


def _gpu_links(before: Mapping[str, int], max_new_errors: int) -> Finding:
    text = ask("nvidia-smi", "nvlink", "--errorcounters")
    return (
        not_here(GPU_LINKS, "no nvidia-smi that answers") if text is None else gpu_links(text, before, max_new_errors)
    )


def _gpu_log(before: Mapping[str, int]) -> Finding:
    if ask("nvidia-smi", "-L") is None:
        return not_here(GPU_LOG, "no nvidia-smi that answers")
    text = ask("dmesg")
    return not_here(GPU_LOG, "the kernel's log may not be read") if text is None else gpu_log(text, before)
