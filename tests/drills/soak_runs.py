"""Starts the soak's runs in two processes, and reads what they left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from failsoft.health.ledger import Event, read_ledger
from failsoft.training.loading.sample_letters import SampleLetter, read_sample_letters
from failsoft.training.summary import RunSummary, summarise
from tests.conftest import ROOT
from tests.drills.soak_data import Texts
from tests.drills.soak_plan import SoakPlan
from tests.drills.test_loader_signals import members

PATIENCE_S = 3600.0
Told = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One run, and what its two ranks said at the end."""

    plan: SoakPlan
    folder: Path
    ranks: tuple[Told, Told]

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Of its ledger."""
        return read_ledger(self.folder / "ledger.jsonl").events

    @cached_property
    def letters(self) -> tuple[SampleLetter, ...]:
        """Of its samples."""
        return read_sample_letters(self.folder / "dead_letters")

    @property
    def summary(self) -> RunSummary:
        """From the ledger."""
        return summarise(self.events, run=self.plan.name)

    def moves(self, degradation: str, name: str | None = None) -> list[Event]:
        """Beginnings, changes and ends of one kind of degradation."""
        found = [event for event in self.events if event.data.get("degradation") == degradation]
        return [event for event in found if name is None or event.data["name"] == name]


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """All runs of two ranks, and the processes that they left."""

    runs: dict[str, Ended]
    left: list[int]


def run_two(folder: Path, texts: Texts, plans: list[SoakPlan]) -> Soaked:
    texts.written(folder / "data-clean", spoilt=False)
    texts.written(folder / "data-spoilt", spoilt=True)
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    said = json.dumps([asdict(plan) for plan in plans])
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.drills.soak_ranks", str(rank), str(folder), said],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=PATIENCE_S)[0] for process in processes]
        left = [pid for process in processes for pid in stayers(process.pid)]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    told = [[json.loads(line) for line in output.splitlines() if line.startswith("{")] for output in outputs]
    ended = {
        plan.name: Ended(plan=plan, folder=folder / plan.name, ranks=(first, second))
        for plan, first, second in zip(plans, *told, strict=True)
    }
    return Soaked(runs=ended, left=left)


def degraded_spans(events: Iterable[Event], total: int) -> dict[tuple[str, str, object], set[int]]:
    """Positions at which each degradation held, by what its own events say."""
    found: dict[tuple[str, str, object], set[int]] = {}
    began: dict[tuple[str, str, object], int] = {}
    for event in (event for event in events if "degradation" in event.data):
        key = (event.data["degradation"], event.data["name"], event.data.get("rank") if "name" in event.data else None)
        key = key if event.data["degradation"] == "source_tier" else (*key[:2], None)
        if event.kind == "degradation_ended":
            found.setdefault(key, set()).update(range(began.pop(key), event.data["position"]))
        else:
            began.setdefault(key, event.data["position"])
            found.setdefault(key, set())
    for key, start in began.items():
        found[key].update(range(start, total))
    return found


def stayers(group: int) -> list[int]:
    """Processes of a group that do not end soon after the one that began it; a fork server takes a moment."""
    until_s = time.monotonic() + 30.0
    while members(group) and time.monotonic() < until_s:
        time.sleep(0.05)
    return members(group)
