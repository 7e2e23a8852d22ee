"""Small all-reduces among nodes of a Ray cluster, by tasks that take no CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import ray.util

from failsoft.health.clock import Clock
from failsoft.training.ray_errands import Errand, Trouble, send
from failsoft.training.survival.fabric import FabricConfig
from failsoft.training.survival.preflight import Finding, PreflightPolicy, failed, not_here, passed
from failsoft.training.survival.preflight_faults import NodeFaultKind, Struck
from failsoft.training.survival.preflight_meeting import (
    MEETING,
    Answer,
    Blame,
    Invitation,
    judge_meeting,
    meet,
    sort_out_many,
)

_TO_AND_FRO = 1.5
"""A rank waits for the others from when it is there; this much longer, in times of that, it is waited for itself."""


@dataclass(frozen=True, kw_only=True)
class Meetings:
    """Has nodes meet, and finds out who is at fault when they don't."""

    fabric: FabricConfig
    """The network that the run's workers would use."""
    gpu: bool
    """Over NCCL, with one GPU of each node; else over gloo."""
    policy: PreflightPolicy
    struck: Mapping[str, Struck]
    """Planned faults, by node."""
    clock: Clock
    _numbers: Iterator[int] = field(default_factory=count)

    def findings(self, trusted: Sequence[str], doubted: Sequence[str]) -> dict[str, Finding]:
        """One for each node. Doubted ones meet one of the trusted after these have met, so that they hold up nobody."""
        everybody = (*trusted, *doubted)
        if len(everybody) < 2:
            return {node: not_here(MEETING, "there is no other node to meet") for node in everybody}
        began_s = self.clock.monotonic_s()
        guilty = sort_out_many(trusted, partial(self._gather, limit_s=self.policy.meeting_s))
        host = [node for node in trusted if node not in guilty][:1]
        late = sort_out_many([*host, *doubted], partial(self._gather, limit_s=self.policy.retest_s)) if doubted else {}
        guilty |= {node: why for node, why in late.items() if node not in host}
        met = passed(MEETING, f"{len(everybody) - len(guilty)} nodes")
        took_s = self.clock.monotonic_s() - began_s
        found = {node: failed(MEETING, guilty[node]) if node in guilty else met for node in everybody}
        return {node: replace(finding, took_s=took_s) for node, finding in found.items()}

    def _gather(self, groups: Sequence[Sequence[str]], limit_s: float) -> list[Blame]:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # noqa: PLC0415 -- public, not listed; a lone node, as most runs have, needs none of it

        host = str(ray.util.get_node_ip_address())
        store = TCPStore(host, 0, is_master=True, wait_for_workers=False)  # in the driver: no node need be trusted
        errands = {
            node: self._errand(node, invitation)
            for group in groups
            for node, invitation in self._invitations(group, host, store.port, limit_s).items()
        }
        outcomes = send(errands, self.clock)
        del store  # not before all ranks are done with it
        return [judge_meeting(group, _answers(group, outcomes)) for group in groups]

    def _invitations(self, group: Sequence[str], host: str, port: int, limit_s: float) -> dict[str, Invitation]:
        name = f"meeting {next(self._numbers)}"
        return {
            node: Invitation(
                host=host,
                port=port,
                name=name,
                rank=rank,
                size=len(group),
                timeout_s=limit_s,
                part=self.struck[node].part,
                device="cuda" if self.gpu else "cpu",
            )
            for rank, node in enumerate(group)
        }

    def _errand(self, node: str, invitation: Invitation) -> Errand[Answer]:
        network = self.fabric.missing_from(os.environ)
        return Errand(
            node=node,
            work=partial(_meet, invitation, network, self.struck[node]),
            patience_s=_TO_AND_FRO * invitation.timeout_s,
            gpus=int(self.gpu),
        )


def _answers(group: Sequence[str], outcomes: Mapping[str, Answer | Trouble]) -> dict[str, Answer]:
    """Of those that came; an error of the task itself is an answer, silence is none."""
    answers: dict[str, Answer] = {}
    for node in group:
        outcome = outcomes[node]
        if isinstance(outcome, Answer):
            answers[node] = outcome
        elif outcome.in_time:
            answers[node] = Answer(error=outcome.why)
    return answers


def _meet(invitation: Invitation, network: Mapping[str, str], struck: Struck) -> Answer:
    struck.stand_still(NodeFaultKind.AWAY_FROM_MEETING)
    os.environ.update(network)
    return meet(invitation)
