"""A small all-reduce among nodes, and who is to blame when it fails. Judging is pure; :func:`meet` is one rank of it.

Rank r puts r + 1 at place r of an otherwise empty vector, so the right sum is 1, 2, 3, … and a wrong one says by its
place whose part went wrong. When all came and none got a sum, neighbours on a ring meet in pairs, two or three rounds
whatever the number of nodes: a node whose pairs all fail is at fault, its neighbours are not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

MEETING = "all-reduce"


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """Where and with whom one node meets; small and picklable."""

    host: str
    port: int
    """Of the store through which ranks find each other."""
    name: str
    """Of this meeting; no two share one."""
    rank: int
    size: int
    timeout_s: float
    part: float | None = None
    """A planned fault: what this rank puts in instead of rank + 1."""
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one node brought back from a meeting: a sum, or what kept it from one."""

    sum: tuple[float, ...] = ()
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Blame:
    """Nodes at fault with their reasons, and whether the meeting failed without a name."""

    guilty: Mapping[str, str] = field(default_factory=dict)
    unclear: str = ""
    """What went wrong while nobody can be named; "" when all is well or explained by the guilty."""

    @property
    def all_well(self) -> bool:
        """A right sum on each node."""
        return not self.guilty and not self.unclear


Pair = tuple[str, str]
_TRIES = 3
"""One is enough unless several nodes are at fault in different ways."""


def judge_meeting(nodes: Sequence[str], answers: Mapping[str, Answer]) -> Blame:
    """Who was at fault.

    Args:
        nodes: in order of their ranks.
        answers: of those that came back in time.
    """
    absent = {node: "did not come to the all-reduce" for node in nodes if node not in answers}
    if absent:
        return Blame(guilty=absent)
    sums = {node: answers[node].sum for node in nodes if not answers[node].error}
    errors = {node: answers[node].error for node in nodes if answers[node].error}
    if len(errors) * 2 >= len(nodes):
        return Blame(unclear=next(iter(errors.values())))
    wrong = _wrong_parts(nodes, list(sums.values()))
    alone = {
        node: f"got another sum than the others: {list(got)}" for node, got in sums.items() if _differs(got, wrong)
    }
    guilty = {node: f"its part of the all-reduce was {value:g}, not {right}" for node, (value, right) in wrong.items()}
    return Blame(guilty=guilty | alone | {node: f"all-reduce: {error}" for node, error in errors.items()})


def _wrong_parts(nodes: Sequence[str], sums: Sequence[Sequence[float]]) -> dict[str, tuple[float, int]]:
    """Nodes whose place is wrong in more than half of the sums, with what is there most and what should be."""
    found: dict[str, tuple[float, int]] = {}
    for place, node in enumerate(nodes):
        values = Counter(_at(place, got) for got in sums)
        value, votes = values.most_common(1)[0]
        if value != place + 1 and votes * 2 > len(sums):
            found[node] = (value, place + 1)
    return found


def _at(place: int, got: Sequence[float]) -> float:
    """The number there; one and the same NaN for all that are none, so that they can be counted."""
    return got[place] if place < len(got) and math.isfinite(got[place]) else math.nan


def _differs(got: Sequence[float], wrong: Mapping[str, tuple[float, int]]) -> bool:
    """Whether a sum is wrong in a place that no other node's part explains."""
    explained = {right for _, right in wrong.values()}
    return any(value != right for right, value in enumerate(got, start=1) if right not in explained)


def ring_rounds(nodes: Sequence[str]) -> list[list[Pair]]:
    """Pairs of neighbours on a ring, in rounds without a node twice: 1 for two nodes, 2, or 3 for an odd number."""
    count = len(nodes)
    if count <= 2:
        return [[(nodes[0], nodes[1])]] if count == 2 else []
    pairs = [(nodes[place], nodes[(place + 1) % count]) for place in range(count)]
    last = [pairs.pop()] if count % 2 else []
    return [found for found in (pairs[::2], pairs[1::2], last) if found]


def judge_ring(pairs: Mapping[Pair, Blame]) -> Blame:
    """Who was at fault, by pairs of neighbours.

    A pair that fails while both its nodes do well with their other neighbours has a bad link between them: one of the
    two must go, and the later is as good as the earlier.
    """
    named = {node: why for blame in pairs.values() for node, why in blame.guilty.items()}
    failing = {pair: blame.unclear for pair, blame in pairs.items() if blame.unclear}
    fine = {node for pair, blame in pairs.items() if blame.all_well for node in pair}
    lonely = {node: why for pair, why in failing.items() for node in pair if node not in fine | named.keys()}
    if not fine and lonely:  # nobody met anybody: two nodes, or a network that is down; one stays, for one works alone
        first, *rest = dict.fromkeys(node for pair in pairs for node in pair if node not in named)
        return Blame(
            guilty=named | {node: f"could meet nobody, not even {first[:12]}: {lonely[node]}" for node in rest}
        )
    guilty = named | {node: f"could meet neither neighbour: {why}" for node, why in lonely.items()}
    links = {pair: why for pair, why in failing.items() if not set(pair) & guilty.keys()}
    return Blame(guilty=guilty | {two: f"could not meet {one[:12]}: {why}" for (one, two), why in links.items()})


Gather = Callable[[Sequence[Sequence[str]]], Sequence[Blame]]
"""Has several groups, none of which shares a node, meet at the same time; one verdict for each."""


def sort_out_many(nodes: Sequence[str], gather: Gather, at_once: int = 32) -> dict[str, str]:
    """The same as :func:`sort_out` for any number of nodes: groups of them at the same time, then one of each group.

    Each rank of gloo connects to each other one, so a thousand at once would take longer than they are waited for.
    """
    if len(nodes) <= at_once:
        return sort_out(nodes, gather)
    parts = math.ceil(len(nodes) / at_once)
    groups = [nodes[part::parts] for part in range(parts)]  # all about as large: of a pair nobody could say who is ill
    guilty: dict[str, str] = {}
    for group, blame in zip(groups, gather(groups), strict=True):
        guilty |= {} if blame.all_well else sort_out(group, gather)
    speakers = [next((node for node in group if node not in guilty), None) for group in groups]
    return guilty | sort_out_many([node for node in speakers if node is not None], gather, at_once)


def sort_out(nodes: Sequence[str], gather: Gather) -> dict[str, str]:
    """Have nodes meet, and leave out who is at fault until the rest got a right sum; the guilty with their reasons.

    All of the rest are returned when they fail together and no pair of them does: nobody knows who, and no run could
    start on them.
    """
    guilty: dict[str, str] = {}
    for _ in range(_TRIES):
        left = [node for node in nodes if node not in guilty]
        if len(left) < 2:
            return guilty
        (together,) = gather([left])
        if together.all_well:
            return guilty
        found = together.guilty or _in_pairs(left, gather).guilty
        if not found:
            return guilty | dict.fromkeys(
                left, f"fails with {len(left)} nodes, and no pair of them does: {together.unclear}"
            )
        guilty |= found
    left = [node for node in nodes if node not in guilty]
    return (
        guilty
        if len(left) < 2
        else guilty | dict.fromkeys(left, f"still fails after {_TRIES} nodes or more were left out")
    )


def _in_pairs(nodes: Sequence[str], gather: Gather) -> Blame:
    pairs: dict[Pair, Blame] = {}
    for pairs_now in ring_rounds(nodes):
        pairs |= dict(zip(pairs_now, gather(pairs_now), strict=True))
    return judge_ring(pairs)


def meet(invitation: Invitation) -> Answer:
    """One rank of an all-reduce, in a process group of its own that is gone afterwards."""
    import torch  # noqa: PLC0415 -- costs seconds in a fresh process, and a lone node never meets anybody
    import torch.distributed as dist  # noqa: PLC0415 -- the same

    limit = timedelta(seconds=invitation.timeout_s)
    part = torch.zeros(invitation.size, dtype=torch.float64, device=invitation.device)
    part[invitation.rank] = invitation.rank + 1 if invitation.part is None else invitation.part
    try:
        store = dist.TCPStore(invitation.host, invitation.port, is_master=False, timeout=limit)  # type: ignore[attr-defined]  # public, not listed
        group = _group(dist.PrefixStore(invitation.name, store), invitation, limit)  # type: ignore[attr-defined]  # the same
        group.allreduce([part]).wait(limit)
        return Answer(sum=tuple(part.tolist()))
    except (RuntimeError, ValueError) as error:  # what torch raises of its network; the rest is a failed task
        return Answer(error=" ".join(str(error).split())[:300])


def _group(store: Any, invitation: Invitation, limit: timedelta) -> Any:
    """Not torch's default group, which the process may have, or make later, for itself."""
    import torch.distributed as dist  # noqa: PLC0415 -- as above

    if invitation.device == "cpu":
        return dist.ProcessGroupGloo(store, invitation.rank, invitation.size, limit)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = limit
    return dist.ProcessGroupNCCL(store, invitation.rank, invitation.size, options)
