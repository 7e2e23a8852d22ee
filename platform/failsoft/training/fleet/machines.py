"""The nodes of a simulated fleet: which are well, ill, away; and what a preflight, or a look at the cluster, finds."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from itertools import count

from failsoft.training.fleet.setting import FleetSetting
from failsoft.training.survival.preflight import NodeReport, failed, passed
from failsoft.training.survival.preflight_record import Record
from failsoft.training.survival.room import NodeRoom, WorkerNeed, fitting

NEED = WorkerNeed(resources={"node": 1.0})
_WELL = "well"


@dataclass(kw_only=True)
class Machines:
    """All nodes that are well are alike, so they are counted and stand for one large node; ill ones have names.

    A node that was mended comes back as another one, as a machine that was started anew does under Ray.
    """

    setting: FleetSetting
    rng: random.Random
    well: int = 0
    """Nodes, in use or not, that are well."""
    record: Record = field(default_factory=Record)
    """What the run's preflights know; failsoft's own."""
    moves: int = 0
    """Times that a node went from the run, by whatever way: what lay in its memory is gone with it."""
    _ill: set[str] = field(default_factory=set)
    _back_s: list[float] = field(default_factory=list)
    _names: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        """All are well at first."""
        self.well = self.setting.nodes + self.setting.spares

    @property
    def ill(self) -> int:
        """Nodes that are ill and may still get a worker, for nobody has found them."""
        return len(self._ill - self.record.excluded)

    def falls_ill(self) -> None:
        """One of those in use."""
        self.well -= 1
        self._ill.add(f"ill{next(self._names)}")

    def goes(self, now_s: float) -> None:
        """One of those in use is away, until it is mended."""
        self.well -= 1
        self._leaves(now_s)

    def look(self, now_s: float) -> None:
        """A preflight of all nodes; what it finds is excluded, taken away, and mended some day."""
        finds = self.setting.preflight_finds
        if finds is None:
            return
        fit = NodeReport(node=_WELL, host=_WELL, findings=(passed("compute"),))
        reports = [fit, *(self._report(name, finds) for name in sorted(self._ill))]
        self.record, changes = self.record.after(reports, passes_to_return=self.setting.preflight.passes_to_return)
        for change in changes:
            if change.node in self.record.excluded:
                self._ill.discard(change.node)
                self._leaves(now_s)

    def found_by_hand(self, now_s: float) -> None:
        """People look longer than a preflight does: nothing that is ill stays."""
        for _ in range(len(self._ill)):
            self._leaves(now_s)
        self._ill.clear()

    def room(self, now_s: float) -> int:
        """Workers that fit, by failsoft's own judgement; an ill node that nobody has found counts."""
        while self._back_s and self._back_s[0] <= now_s:
            heapq.heappop(self._back_s)
            self.well += 1
        rooms = [_room(_WELL, self.well), *(_room(name, 1) for name in self._ill)]
        return fitting(rooms, NEED, self.record.excluded)

    @property
    def next_back_s(self) -> float | None:
        """When the next one is mended; None: all are here."""
        return self._back_s[0] if self._back_s else None

    def _report(self, name: str, finds: float) -> NodeReport:
        found = self.rng.random() < finds
        finding = failed("compute", "a product came out wrong") if found else passed("compute")
        return NodeReport(node=name, host=name, findings=(finding,))

    def _leaves(self, now_s: float) -> None:
        self.moves += 1
        heapq.heappush(self._back_s, now_s + self.rng.expovariate(1.0 / self.setting.times.repair_s))


def _room(name: str, nodes: int) -> NodeRoom:
    here = {"node": float(nodes)}
    return NodeRoom(node=name, name=name, free=here, total=here)
