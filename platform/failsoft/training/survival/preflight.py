"""Before an attempt: is each node fit for it? What a probe may find, what is enough, and the verdict on a node. Pure.

A machine that computes wrongly, or whose disk, memory or links fail, costs more in a run than out of it: the run stops,
restarts on it, and stops again. "No answer in time" and an error are failures; a probe that cannot exist on a node (no
GPU, no InfiniBand) is not here, which is said and is no pass. Clocks of two nodes are never compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from failsoft.errors import ConfigError
from failsoft.health.clock import Clock

_MIB = 1 << 20
_NAMED_NODES = 200


class Outcome(StrEnum):
    """What one probe came to."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_HERE = "not here"
    """Nothing of the kind exists on this node, or it cannot be read."""
    NO_ANSWER = "no answer"
    """Not in time. Counts as failed."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one probe found."""

    probe: str
    outcome: Outcome
    why: str = ""
    """In words; for a failure what is wrong, else what was looked at."""
    took_s: float = 0.0
    counters: Mapping[str, int] = field(default_factory=dict)
    """Totals to compare the next reading with, by name."""

    @property
    def bad(self) -> bool:
        """Whether the node must not take part."""
        return self.outcome in {Outcome.FAILED, Outcome.NO_ANSWER}


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """All findings on one node."""

    node: str
    """Ray's id of it."""
    host: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Something passed and nothing failed: a node of which nothing is known is not fit."""
        outcomes = {finding.outcome for finding in self.findings}
        return Outcome.PASSED in outcomes and not any(finding.bad for finding in self.findings)

    @property
    def why(self) -> str:
        """What is wrong with the node, in words; "" when nothing is."""
        bad = [f"{finding.probe}: {finding.why or finding.outcome}" for finding in self.findings if finding.bad]
        return "; ".join(bad) or ("" if self.passed else "no probe could look at it")

    @property
    def counters(self) -> dict[str, int]:
        """Of all probes; the next preflight looks at what was added since."""
        return {name: total for finding in self.findings for name, total in finding.counters.items()}

    def without(self, probes: Collection[str]) -> NodeReport:
        """The same as if these probes had not been carried out."""
        return replace(self, findings=tuple(finding for finding in self.findings if finding.probe not in probes))

    def with_findings(self, more: Iterable[Finding]) -> NodeReport:
        """The same with later findings added."""
        return replace(self, findings=(*self.findings, *more))


@dataclass(frozen=True, kw_only=True)
class PreflightPolicy:
    """How long a preflight may take and what a node must have."""

    answer_s: float = 60.0
    """Until a node's own probes are there, a fresh worker process included: measured 0.4 s on a busy machine, and 10 s
    on one with twenty times as much to do as cores. A node that says nothing costs this once, for it is excluded."""
    retest_s: float = 10.0
    """The same for an excluded node, and for each all-reduce with it: the run can do without."""
    meeting_s: float = 20.0
    """Until an all-reduce of a few numbers is done, from the first rank that came to it; measured 0.1 s. A rank that
    must import torch first comes 2 to 6 s after one that need not."""
    matmul_s: float = 0.1
    """For known-answer products on the host, all cores together, in turn, and the same again on each GPU; cores that
    found no time are next in the next preflight."""
    memory_pattern_bytes: int = 16 * _MIB
    """Written with patterns and read back. A look, no memory test: that takes hours and the whole machine."""
    min_free_memory_bytes: int = 512 * _MIB
    """A worker with torch and nothing else holds about 300 MiB (measured)."""
    min_free_disk_bytes: int = 256 * _MIB
    """While no checkpoint has shown its size."""
    checkpoints_that_fit: float = 2.0
    """Free disk in sizes of the largest checkpoint: one is written beside those that stay, and one more on the way."""
    max_new_link_errors: int = 10
    """Symbol, receive, recovery and integrity errors of one link since the last look. Ours: fast serial links have some
    at all times and correct them, and no maker names a limit. A link that went down once is too much in any case."""
    passes_to_return: int = 2
    """Preflights in a row that an excluded node passes before it is taken back: a fault that comes and goes is one."""

    def __post_init__(self) -> None:
        """Refuse a preflight that never ends, or asks for nothing."""
        for name in ("answer_s", "retest_s", "meeting_s", "matmul_s"):
            if not 0.0 < getattr(self, name) <= 3600.0:
                raise ConfigError(f"{name} is {getattr(self, name)}; use more than 0 and at most 3600 seconds")
        for name in ("memory_pattern_bytes", "min_free_memory_bytes", "min_free_disk_bytes", "max_new_link_errors"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 0 or more")
        if not self.checkpoints_that_fit >= 1.0:
            raise ConfigError(
                f"checkpoints_that_fit is {self.checkpoints_that_fit}; the next one must fit: use 1 or more"
            )
        if self.passes_to_return < 1:
            raise ConfigError(f"passes_to_return is {self.passes_to_return}; use 1 or more")


Probe = Callable[[], Finding]
"""One look at this node. What it raises is a failure."""


def passed(probe: str, why: str = "", counters: Mapping[str, int] | None = None) -> Finding:
    """The node has what was asked for."""
    return Finding(probe=probe, outcome=Outcome.PASSED, why=why, counters=counters or {})


def failed(probe: str, why: str, counters: Mapping[str, int] | None = None) -> Finding:
    """It has not."""
    return Finding(probe=probe, outcome=Outcome.FAILED, why=why, counters=counters or {})


def not_here(probe: str, why: str) -> Finding:
    """There is nothing to look at."""
    return Finding(probe=probe, outcome=Outcome.NOT_HERE, why=why)


def no_answer(probe: str, why: str) -> Finding:
    """It did not come in time."""
    return Finding(probe=probe, outcome=Outcome.NO_ANSWER, why=why)


def carry_out(probes: Mapping[str, Probe], clock: Clock) -> tuple[Finding, ...]:
    """Each probe in turn, on this node; an error of one is its failure and keeps none of the others from looking."""
    return tuple(_one(name, probe, clock) for name, probe in probes.items())


def _one(name: str, probe: Probe, clock: Clock) -> Finding:
    began_s = clock.monotonic_s()
    try:
        found = probe()
    except Exception as error:  # noqa: BLE001 -- whatever keeps a probe from its answer would meet the run as well
        found = failed(name, f"{type(error).__name__}: {error}")
    return replace(found, took_s=clock.monotonic_s() - began_s)


def summary_of(reports: Sequence[NodeReport]) -> dict[str, object]:
    """All nodes as small JSON for the ledger: what failed in words, where nothing was to look at, the slowest times.

    Beyond some hundred nodes only those that failed are named, for an event has its limit.
    """
    named = reports if len(reports) <= _NAMED_NODES else [report for report in reports if not report.passed]
    return {
        "nodes": {report.node: _one_line(report) for report in named},
        "slowest_s": _by_probe((finding.probe, finding.took_s) for report in reports for finding in report.findings),
        "not_here": sorted({finding.probe for report in reports for finding in report.findings if _is_absent(finding)}),
    }


def _one_line(report: NodeReport) -> dict[str, object]:
    line: dict[str, object] = {"host": report.host, "passed": report.passed}
    bad = {finding.probe: finding.why[:300] for finding in report.findings if finding.bad}
    return line | ({"failed": bad} if bad else {})


def _by_probe(times: Iterable[tuple[str, float]]) -> dict[str, float]:
    slowest: dict[str, float] = {}
    for probe, took_s in times:
        slowest[probe] = max(slowest.get(probe, 0.0), round(took_s, 4))
    return slowest


def _is_absent(finding: Finding) -> bool:
    return finding.outcome is Outcome.NOT_HERE
