from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from failsoft.health.faults import Fault, FaultKind, FaultPlan, burst
from failsoft.health.ledger import read_ledger
from failsoft.training.letters.deadletters import read_dead_letters
from failsoft.training.snapshots.host_memory import HOST_MEMORY_VARIABLE
from tests.rank_pair import heard_from

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 240
"""Starting Python with torch takes seconds, and a minute on a machine that is busy with other things."""


def start(
    folder: Path, rank: int, faults: FaultPlan, total: int = 24, *, host: Path | None = None
) -> subprocess.Popen[str]:
    """With ``host``, that is the memory of the host that the rank is on."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.training.two_ranks", str(rank), str(folder), faults.to_json(), str(total)]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    environment |= {} if host is None else {HOST_MEMORY_VARIABLE: str(host)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def run_two(
    folder: Path, *faults: Fault, total: int = 24, hosts: Sequence[Path | None] = (None, None)
) -> list[dict[str, Any]]:
    ranks = [start(folder, rank, FaultPlan(faults=faults), total, host=hosts[rank]) for rank in range(2)]
    try:
        return [json.loads(text) for text in heard_from(ranks, patience_s=PATIENCE_S)]
    finally:
        for rank in ranks:
            rank.kill()


def test_a_nan_on_one_rank_is_refused_on_both_and_nobody_hangs(tmp_path: Path) -> None:
    nan = Fault(kind=FaultKind.NAN_BATCH, position=5, rank=1)
    inf = Fault(kind=FaultKind.INF_GRADIENT, position=9, rank=0)
    first, second = run_two(tmp_path / "run", nan, inf)
    assert (first["position"], first["step"]) == (second["position"], second["step"]) == (24, 22)
    for name in (name for name in first["weights"] if "running" not in name):  # batch statistics are each rank's own
        assert first["weights"][name] == second["weights"][name]
    letters = read_dead_letters(tmp_path / "run" / "dead_letters")
    assert [(letter.position, letter.rank) for letter in letters] == [(5, 0), (5, 1), (9, 0), (9, 1)]


def test_two_ranks_killed_in_mid_run_end_with_the_weights_of_the_undisturbed_two(tmp_path: Path) -> None:
    undisturbed = run_two(tmp_path / "undisturbed")
    kills = [Fault(kind=FaultKind.KILL_WORKER, position=13, rank=rank) for rank in range(2)]
    dying = [start(tmp_path / "killed", rank, FaultPlan(faults=tuple(kills))) for rank in range(2)]
    assert heard_from(dying, patience_s=PATIENCE_S) == ["", ""]
    assert [rank.returncode for rank in dying] == [-9, -9]
    (tmp_path / "killed" / "meeting").unlink()
    assert run_two(tmp_path / "killed", *kills) == undisturbed


def test_two_killed_ranks_go_on_from_their_snapshot_in_memory_of_the_host(tmp_path: Path, host_memory: Path) -> None:
    undisturbed = run_two(tmp_path / "undisturbed")
    kills = [Fault(kind=FaultKind.KILL_WORKER, position=15, rank=rank) for rank in range(2)]
    dying = [start(tmp_path / "killed", rank, FaultPlan(faults=tuple(kills))) for rank in range(2)]
    assert heard_from(dying, patience_s=PATIENCE_S) == ["", ""]
    assert len(list(host_memory.rglob("note-*"))) == 2 * 2
    (tmp_path / "killed" / "meeting").unlink()
    assert run_two(tmp_path / "killed", *kills) == undisturbed
    events = read_ledger(tmp_path / "killed" / "ledger.jsonl").events
    began = [
        (event.data["position"], event.data["repeated_batches"]) for event in events if event.kind == "run_started"
    ]
    assert began == [(0, 0), (12, 3)]
    assert list(host_memory.rglob("note-*")) == []


def test_killed_ranks_that_change_hosts_go_on_from_their_snapshots_all_the_same(tmp_path: Path) -> None:
    undisturbed = run_two(tmp_path / "undisturbed")
    hosts = [tmp_path / "this host", tmp_path / "that host"]
    for host in hosts:
        host.mkdir()
    kills = [Fault(kind=FaultKind.KILL_WORKER, position=15, rank=rank) for rank in range(2)]
    dying = [start(tmp_path / "killed", rank, FaultPlan(faults=tuple(kills)), host=hosts[rank]) for rank in range(2)]
    assert heard_from(dying, patience_s=PATIENCE_S) == ["", ""]
    (tmp_path / "killed" / "meeting").unlink()
    assert run_two(tmp_path / "killed", *kills, hosts=hosts[::-1]) == undisturbed
    events = read_ledger(tmp_path / "killed" / "ledger.jsonl").events
    assert [event.data["position"] for event in events if event.kind == "run_started"] == [0, 12]
    assert [path for host in hosts for path in host.rglob("*") if path.is_file()] == []


def test_two_ranks_climb_the_ladder_to_the_disk_together_and_end_alike(tmp_path: Path) -> None:
    first, second = run_two(tmp_path / "run", *burst(FaultKind.NAN_BATCH, first=18, count=15, ranks=(1,)), total=40)
    assert (first["position"], first["step"]) == (second["position"], second["step"]) == (40, 8 + 40 - 33)
    back = [event for event in read_ledger(tmp_path / "run" / "ledger.jsonl").events if event.kind == "rolled_back"]
    assert [event.data["remedy"] for event in back] == ["snapshot", "snapshot_slower", "disk"]
    for name in (name for name in first["weights"] if "running" not in name):
        assert first["weights"][name] == second["weights"][name]
