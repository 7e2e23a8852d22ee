"""Which nodes a run keeps away from, and until when: remembered in its folder, so that the next driver knows.

A node is excluded by one failed preflight and taken back after some in a row that it passes; it is looked at in each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from failsoft.artifacts.asides import replace_whole
from failsoft.health.json_object import is_count, json_object
from failsoft.health.lifecycle import Lifecycle, Move
from failsoft.training.survival.preflight import NodeReport

RECORD_NAME = "preflight.json"
_VERSION = 1
_MOST_GONE = 256
"""Each excluded id is also a part of the label selector of each worker."""


class Standing(StrEnum):
    """Of a node in a run."""

    FIT = "fit"
    EXCLUDED = "excluded"
    RETURNING = "returning"
    """Passed, but not often enough in a row; still excluded."""


_MOVES: dict[Standing, frozenset[Standing]] = {
    Standing.FIT: frozenset({Standing.EXCLUDED}),
    Standing.EXCLUDED: frozenset({Standing.RETURNING, Standing.FIT}),
    Standing.RETURNING: frozenset({Standing.EXCLUDED, Standing.FIT}),
}


@dataclass(frozen=True, kw_only=True)
class NodeHistory:
    """What a run knows of one node."""

    host: str = ""
    standing: Standing = Standing.FIT
    why: str = ""
    """Of its last exclusion."""
    times_excluded: int = 0
    passes: int = 0
    """In a row since then."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """At the last look."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A node whose standing changed."""

    node: str
    host: str
    move: Move[Standing]


@dataclass(frozen=True, kw_only=True)
class Record:
    """All nodes that a run has looked at, and how often it has looked."""

    nodes: Mapping[str, NodeHistory] = field(default_factory=dict)
    preflights: int = 0

    @property
    def excluded(self) -> frozenset[str]:
        """Ids of the nodes to keep away from."""
        return frozenset(node for node, known in self.nodes.items() if known.standing is not Standing.FIT)

    def in_words(self, nodes: Iterable[str]) -> str:
        """Of these nodes those that are excluded, why, and what to do about it; "" when none is."""
        reasons = [f"{self.of(node).host}: {self.of(node).why}" for node in sorted(self.excluded & set(nodes))]
        return f"Unfit by preflight: {'; '.join(reasons)}. Mend or replace; each is looked at again" if reasons else ""

    def of(self, node: str) -> NodeHistory:
        """What is known of a node; that of a fit one when nothing is."""
        return self.nodes.get(node, NodeHistory())

    def after(self, reports: Sequence[NodeReport], *, passes_to_return: int) -> tuple[Record, tuple[Change, ...]]:
        """The record with one more preflight in it, and what changed by it.

        Nodes without a report are gone. Those that left while fit are forgotten; the others' history stays, of so many
        of them as may come back: a machine that is started anew has another id.
        """
        unfit = [node for node, known in self.nodes.items() if known.standing is not Standing.FIT]
        here = {report.node for report in reports}
        forgotten = frozenset([node for node in unfit if node not in here][:-_MOST_GONE])
        gone = {node: self.nodes[node] for node in unfit if node not in forgotten}
        now, changes = dict(gone), []
        for report in reports:
            known, moves = _after(self.of(report.node), report, passes_to_return)
            now[report.node] = known
            changes += [Change(node=report.node, host=report.host, move=move) for move in moves]
        return Record(nodes=now, preflights=self.preflights + 1), tuple(changes)


def _after(known: NodeHistory, report: NodeReport, passes_to_return: int) -> tuple[NodeHistory, list[Move[Standing]]]:
    moves: list[Move[Standing]] = []
    life = Lifecycle(_MOVES, known.standing, moves.append)
    known = replace(known, host=report.host, counters=dict(known.counters) | report.counters)
    if not report.passed:
        if life.state is not Standing.EXCLUDED:
            life.move(Standing.EXCLUDED, why=report.why)
        times = known.times_excluded + (known.standing is Standing.FIT)
        return replace(known, standing=life.state, why=report.why, passes=0, times_excluded=times), moves
    if life.state is Standing.FIT:
        return known, moves
    passes = known.passes + 1
    if passes >= passes_to_return:
        life.move(Standing.FIT, why=f"passed {passes} preflights in a row")
    elif life.state is Standing.EXCLUDED:
        life.move(Standing.RETURNING, why=f"passed {passes} of {passes_to_return} preflights")
    return replace(known, standing=life.state, passes=passes), moves


def read_record(folder: Path) -> Record:
    """The run's record; an empty one where none can be read: then each node is looked at as if for the first time."""
    try:
        found = json_object((folder / RECORD_NAME).read_bytes()) or {}
    except OSError:
        found = {}
    nodes = found.get("nodes")
    known = {node: _history(entry) for node, entry in nodes.items()} if isinstance(nodes, dict) else {}
    preflights = found.get("preflights")
    kept = {node: history for node, history in known.items() if history is not None and node.isalnum()}
    return Record(nodes=kept, preflights=preflights if is_count(preflights) else 0)


def _history(entry: object) -> NodeHistory | None:
    if not isinstance(entry, dict):
        return None
    counters, times, passes = entry.get("counters"), entry.get("times_excluded"), entry.get("passes")
    if not is_count(times) or not is_count(passes):
        return None
    try:
        return NodeHistory(
            host=str(entry["host"]),
            standing=Standing(entry["standing"]),
            why=str(entry["why"]),
            times_excluded=times,
            passes=passes,
            counters={name: n for name, n in counters.items() if is_count(n)} if isinstance(counters, dict) else {},
        )
    except (KeyError, ValueError, TypeError):
        return None


def write_record(folder: Path, record: Record) -> None:
    """Replace the file whole.

    Raises:
        OSError: the disk refuses; the old record stands.
    """
    nodes = {node: asdict(known) for node, known in record.nodes.items()}
    content = json.dumps({"v": _VERSION, "preflights": record.preflights, "nodes": nodes})
    replace_whole(folder / RECORD_NAME, content.encode())
