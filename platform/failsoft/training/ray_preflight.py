"""A preflight on Ray: each node looked at by a task of its own, then an all-reduce among those that passed.

Ray 2.60 gives no process that ran a task to an actor, so probes do not warm up the workers of an attempt; those of a
node therefore do without torch, which alone costs a fresh process two seconds. An all-reduce needs it; a lone node
needs no all-reduce.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import ray

from failsoft.health.clock import Clock, SystemClock
from failsoft.training.ray_errands import Errand, Trouble, send
from failsoft.training.ray_meetings import Meetings
from failsoft.training.ray_room import rooms_here
from failsoft.training.ray_settings import RaySettings
from failsoft.training.survival.preflight import (
    Finding,
    NodeReport,
    PreflightPolicy,
    failed,
    no_answer,
    not_here,
    summary_of,
)
from failsoft.training.survival.preflight_compute import MATMUL, known_answer_on_device
from failsoft.training.survival.preflight_faults import NodeFault, Struck, faults_of
from failsoft.training.survival.preflight_host import bytes_needed, storage_trouble
from failsoft.training.survival.preflight_meeting import MEETING
from failsoft.training.survival.preflight_node import Look, look_around
from failsoft.training.survival.preflight_record import Record, Standing, read_record, write_record
from failsoft.training.survival.room import NodeRoom, need_of, usable

_NODE = "node"
"""Stands for the probes of a node that came to none."""


@dataclass(frozen=True, kw_only=True)
class Cleared:
    """What an attempt may use."""

    excluded: frozenset[str] = frozenset()
    """Ids of nodes to keep away from; for :attr:`RaySettings.excluded`."""
    why: Mapping[str, str] = field(default_factory=dict)
    """Of each of them that is still there, by the name that people know it by."""
    took_s: float = 0.0


def preflight(
    settings: RaySettings, *, policy: PreflightPolicy | None = None, faults: Sequence[NodeFault] = ()
) -> Cleared:
    """Look at each node that could get a worker, remember, and tell the ledger. Called before each attempt.

    Args:
        settings: the run's. Nodes in its ``excluded`` are not looked at; they are the caller's to keep away from.
        policy: how long it may take and what a node must have.
        faults: planned ones; none in production.
    """
    clock, policy = SystemClock(), policy or PreflightPolicy()
    began_s, before = clock.monotonic_s(), read_record(settings.folder)
    reports = look_at_nodes(settings, policy, record=before, faults=faults)
    if not reports:  # Ray's head is away, or nobody has room: nothing was learnt
        return Cleared(excluded=before.excluded, took_s=clock.monotonic_s() - began_s)
    ledger, took_s = settings.open_ledger(), clock.monotonic_s() - began_s
    trouble = storage_trouble(reports)
    for probe, why in trouble.items():
        ledger.record("storage_unfit", f"on each node: {why}", probe=probe)
    judged = [report.without(trouble) for report in reports]
    record, changes = before.after(judged, passes_to_return=policy.passes_to_return)
    for change in changes:
        kind = "node_returned" if change.move.after is Standing.FIT else f"node_{change.move.after}"
        ledger.record(kind, change.move.why, node=change.node, host=change.host)
    fit = sum(report.node not in record.excluded for report in reports)
    said = f"{fit} of {len(reports)} nodes are fit"
    ledger.record("preflight", said, took_s=round(took_s, 3), **summary_of(reports))
    try:
        write_record(settings.folder, record)
    except OSError as error:  # the nodes were looked at all the same; a disk that is away is a finding of theirs
        ledger.record("preflight_unrecorded", str(error))
    here = [report for report in reports if report.node in record.excluded]
    reasons = {report.host: record.of(report.node).why for report in here}
    return Cleared(excluded=record.excluded, why=reasons, took_s=took_s)


def look_at_nodes(
    settings: RaySettings, policy: PreflightPolicy, *, record: Record | None = None, faults: Sequence[NodeFault] = ()
) -> tuple[NodeReport, ...]:
    """One report for each node that lives, answers, is not drained and could hold a worker. Remembers nothing.

    Args:
        settings: how large a worker is, and where the run's folder lies.
        policy: how long it may take and what a node must have.
        record: what the run knows; a node that it excludes is waited for less, and meets others after they met.
        faults: planned ones.
    """
    known, clock = record or Record(), SystemClock()
    need = need_of(settings.need())
    rooms = {room.node: room for room in usable(rooms_here() or (), settings.excluded) if need.fits_in(room.total)}
    struck = {node: faults_of(node, faults) for node in rooms}
    reports = _Looks(settings=settings, policy=policy, record=known, struck=struck, clock=clock).at(rooms)
    trouble = storage_trouble(list(reports.values()))
    fit = [node for node, report in reports.items() if report.without(trouble).passed]
    free = _with_a_free_gpu(rooms) if settings.gpu else frozenset(fit)
    busy = [node for node in fit if node not in free]
    for node in busy:
        reports[node] = reports[node].with_findings([not_here(MEETING, "its GPUs are in use")])
    trusted = [node for node in fit if node not in known.excluded and node not in busy]
    doubted = [node for node in fit if node in known.excluded and node not in busy]
    meetings = Meetings(fabric=settings.fabric, gpu=settings.gpu, policy=policy, struck=struck, clock=clock)
    for node, finding in meetings.findings(trusted, doubted).items():
        reports[node] = reports[node].with_findings([finding])
    return tuple(reports.values())


def _with_a_free_gpu(before: Mapping[str, NodeRoom]) -> frozenset[str]:
    """Asked after the looks, when Ray's view knows that the workers before are gone. Others could not come to meet."""
    now = before.values() if (asked := rooms_here()) is None else asked
    return frozenset(room.node for room in now if room.free.get("GPU", 0.0) >= 1.0)


@dataclass(frozen=True, kw_only=True)
class _Looks:
    """Each node by itself."""

    settings: RaySettings
    policy: PreflightPolicy
    record: Record
    struck: Mapping[str, Struck]
    clock: Clock

    def at(self, rooms: Mapping[str, NodeRoom]) -> dict[str, NodeReport]:
        folder, policy = self.settings.folder, self.policy
        need_bytes = bytes_needed(folder / "checkpoints", policy.checkpoints_that_fit, policy.min_free_disk_bytes)
        looks = {node: self._look(room, need_bytes) for node, room in rooms.items()}
        errands: dict[tuple[str, int | None], Errand[tuple[Finding, ...]]] = {
            (node, None): Errand(node=node, work=partial(_look, look), patience_s=self._patience_s(node))
            for node, look in looks.items()
        }
        errands |= {
            (node, gpu): Errand(
                node=node, work=partial(_look_at_gpu, policy), patience_s=self._patience_s(node), gpus=1
            )
            for node, room in rooms.items()
            for gpu in range(self._gpus(room))
        }
        found = send(errands, self.clock)
        return {node: self._report(room, found) for node, room in rooms.items()}

    def _look(self, room: NodeRoom, need_bytes: int) -> Look:
        return Look(
            node=room.node,
            folder=self.settings.folder,
            need_disk_bytes=need_bytes,
            policy=self.policy,
            before=self.record.of(room.node).counters,
            turn=self.record.preflights,
            faults=self.struck[room.node],
        )

    def _patience_s(self, node: str) -> float:
        return self.policy.retest_s if node in self.record.excluded else self.policy.answer_s

    def _gpus(self, room: NodeRoom) -> int:
        return int(room.free.get("GPU", 0.0)) if self.settings.gpu else 0

    def _report(
        self, room: NodeRoom, found: Mapping[tuple[str, int | None], tuple[Finding, ...] | Trouble]
    ) -> NodeReport:
        findings: list[Finding] = []
        for (node, gpu), outcome in found.items():
            if node == room.node:
                findings += _findings(_NODE if gpu is None else f"{MATMUL} GPU", outcome)
        held = int(room.total.get("GPU", 0.0)) - self._gpus(room) if self.settings.gpu else 0
        if held:
            findings.append(not_here(f"{MATMUL} GPU", f"{held} in use by others"))
        return NodeReport(node=room.node, host=room.name, findings=tuple(findings))


def _findings(probe: str, outcome: tuple[Finding, ...] | Trouble) -> tuple[Finding, ...]:
    if isinstance(outcome, Trouble):
        return ((failed if outcome.in_time else no_answer)(probe, outcome.why),)
    return outcome


def _look(look: Look) -> tuple[Finding, ...]:
    return look_around(look, SystemClock())


def _look_at_gpu(policy: PreflightPolicy) -> tuple[Finding, ...]:
    """In a process that Ray shows one GPU only."""
    clock = SystemClock()
    began_s, (gpu, *_) = clock.monotonic_s(), ray.get_gpu_ids()
    found = known_answer_on_device("cuda:0", policy.matmul_s, clock)
    return (replace(found, probe=f"{MATMUL} GPU {gpu}", took_s=clock.monotonic_s() - began_s),)
