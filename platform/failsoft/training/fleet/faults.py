"""What strikes a fleet, and how often: counts that others have published, sorted by what a run must do about them.

Llama 3 405B: Llama Team, "The Llama 3 Herd of Models", arXiv 2407.21783, section 3.3.4 and table 5: 466 interruptions
of a run on 16,384 H100 in 54 days, 47 of them planned, 419 not; "higher than 90 % effective training time"; people had
to do much three times. RSC: Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters",
arXiv 2410.21680: a mean time to failure of 1.8 h for jobs of 16,384 GPUs, projected; 6.5 failures in 1000 node-days.
97 % on 9,600 GPUs in three months: Wan et al., "Robust LLM Training Infrastructure at ByteDance", arXiv 2509.16293.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from failsoft.errors import ConfigError

GPUS_PER_NODE = 8
_DAY_S = 86_400.0


class Fault(StrEnum):
    """By what a run must do about it."""

    PROCESS = "process"
    """A worker dies; its machine is well."""
    ILL = "node ill"
    """A machine stays, and every worker that is started on it dies, until it is mended."""
    LOST = "node lost"
    """A machine goes away."""
    HANG = "hang"
    """Nobody dies, and nothing moves."""
    PLANNED = "planned"
    """A machine is wanted elsewhere, and that is said before."""


LLAMA3_CAUSES: Mapping[str, tuple[int, Fault]] = MappingProxyType(
    {
        "faulty GPU": (148, Fault.ILL),
        "GPU HBM3 memory": (72, Fault.ILL),
        "software bug": (54, Fault.PROCESS),
        "network switch or cable": (35, Fault.HANG),
        "host maintenance, unplanned": (32, Fault.LOST),
        "GPU SRAM memory": (19, Fault.ILL),
        "GPU system processor": (17, Fault.ILL),
        "NIC": (7, Fault.ILL),
        "NCCL watchdog timeout": (7, Fault.HANG),
        "silent data corruption": (6, Fault.ILL),
        "GPU thermal interface and sensor": (6, Fault.ILL),
        "SSD": (3, Fault.ILL),
        "power supply": (3, Fault.LOST),
        "server chassis": (2, Fault.LOST),
        "IO expansion board": (2, Fault.ILL),
        "dependency": (2, Fault.PROCESS),
        "CPU": (2, Fault.ILL),
        "system memory": (2, Fault.ILL),
    }
)
"""Table 5 of the paper; they add up to its 419. The sorting by what to do is ours."""
LLAMA3_PLANNED = 47
LLAMA3_DAYS = 54.0
LLAMA3_GPUS = 16_384


@dataclass(frozen=True, kw_only=True)
class FaultRates:
    """How often one node is struck, by kind."""

    name: str
    per_node_s: Mapping[Fault, float]
    """Faults of one node in a second, each at a constant rate."""

    def __post_init__(self) -> None:
        """Refuse a world without faults: there is nothing to simulate."""
        if not self.total_per_node_s > 0.0:
            raise ConfigError(f"the rates {self.name!r} hold no fault; give one kind at least a rate above 0")

    @property
    def total_per_node_s(self) -> float:
        """Of all kinds together."""
        return sum(self.per_node_s.values())

    def mtbf_s(self, nodes: int) -> float:
        """Mean time between faults of so many nodes together."""
        return 1.0 / (self.total_per_node_s * nodes)

    def scaled(self, factor: float) -> FaultRates:
        """The same kinds in the same proportions, so many times as often."""
        per_node_s = {kind: rate * factor for kind, rate in self.per_node_s.items()}
        return FaultRates(name=self.name, per_node_s=per_node_s)


def llama3() -> FaultRates:
    """What was counted in 54 days of Llama 3, planned interruptions included."""
    counts = dict.fromkeys(Fault, 0) | {Fault.PLANNED: LLAMA3_PLANNED}
    for count, kind in LLAMA3_CAUSES.values():
        counts[kind] += count
    node_s = LLAMA3_GPUS / GPUS_PER_NODE * LLAMA3_DAYS * _DAY_S
    return FaultRates(name="llama3", per_node_s={kind: count / node_s for kind, count in counts.items()})


def rsc() -> FaultRates:
    """6.5 unplanned failures in 1000 node-days; their kinds as in Llama 3, for the paper's own are of another sort."""
    rates = llama3()
    unplanned = {kind: rate for kind, rate in rates.per_node_s.items() if kind is not Fault.PLANNED}
    factor = 6.5 / 1000.0 / _DAY_S / sum(unplanned.values())
    scaled = {kind: rate * factor for kind, rate in unplanned.items()}
    return FaultRates(name="rsc", per_node_s=scaled | {Fault.PLANNED: rates.per_node_s[Fault.PLANNED]})


RATES = MappingProxyType({"llama3": llama3, "rsc": rsc})
"""By the name that a command line gives."""


def rates_named(name: str) -> FaultRates:
    """One of the published ones.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in RATES:
        raise ConfigError(f"faults is {name!r}; use one of {', '.join(sorted(RATES))}")
    return RATES[name]()
