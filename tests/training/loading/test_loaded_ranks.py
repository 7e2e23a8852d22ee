from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from failsoft.health.ledger import read_ledger
from failsoft.training.batches import GlobalBatches
from failsoft.training.loading.sample import BadKind
from failsoft.training.loading.sample_letters import read_sample_letters
from failsoft.training.ranks import SoloRank
from tests.conftest import ROOT
from tests.rank_pair import heard_from
from tests.training.loading.data import row_of
from tests.training.loading.loaded_ranks import Plan, trained

PATIENCE_S = 240


@dataclass(frozen=True, kw_only=True)
class Run:
    """One plan, carried out by two ranks."""

    folder: Path
    plan: Plan
    ranks: tuple[dict[str, Any], dict[str, Any]]


def run_two(folder: Path, plans: list[Plan]) -> list[Run]:
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.training.loading.loaded_ranks"]
    said = json.dumps([asdict(plan) for plan in plans])
    processes = [
        subprocess.Popen(
            [*command, str(rank), "2", str(folder), said], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        first, second = (json.loads(text) for text in heard_from(processes, patience_s=PATIENCE_S))
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    ended = zip(plans, first, second, strict=True)
    return [
        Run(folder=folder / str(place), plan=plan, ranks=(ours, theirs))
        for place, (plan, ours, theirs) in enumerate(ended)
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """All plans in one pair of processes: starting them takes longer than training."""
    return run_two(tmp_path_factory.mktemp("ranks"), [uneven(), empty(), ten_thousand(), spread()])


def uneven() -> Plan:
    """Two bad samples of one share of rank 1, and the whole of another."""
    hit = share(Plan(), 0, 1)[:2] + share(Plan(), 2, 1)
    kinds = ["raises", "nan", "stubborn", "shape", "digest", "stands in", "source", "lock"]
    return Plan(faults=dict(zip(hit, kinds, strict=True)))


def empty() -> Plan:
    """One global batch of the first epoch is all bad."""
    return Plan(total=8, faults=dict.fromkeys(order(Plan()).global_indices(2).tolist(), "raises"))


def ten_thousand() -> Plan:
    """0.03 %: above the 0.01 % that warn, below the 0.1 % that stop; judged from 10,000 samples on here."""
    plan = Plan(size=10_000, batch=200, total=50, learning_rate=0.01, min_samples=10_000)
    return replace(plan, faults=dict.fromkeys([share(plan, position, 1)[0] for position in (3, 20, 41)], "raises"))


def spread() -> Plan:
    """Each batch in updates of three samples, of which one rank has one and the other two; the last of all is bad."""
    bad = order(Plan()).global_indices(1)[9:]
    return Plan(updates=4, faults=dict.fromkeys([*bad.tolist(), *share(Plan(), 2, 0)[:2]], "raises"))


def order(plan: Plan) -> GlobalBatches:
    return GlobalBatches(num_samples=plan.size, global_batch=plan.batch, seed=3)


def by_hand(plan: Plan) -> torch.Tensor:
    """The same training without any of this: a plain loop over the good samples of each global batch."""
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=plan.learning_rate / plan.updates, momentum=0.9)
    batches = order(plan)
    wholes = (batches.global_indices(position) for position in range(plan.total))
    for part in (part for whole in wholes for part in np.split(whole, plan.updates)):
        good = [index for index in part.tolist() if index not in plan.faults]
        if not good:
            continue
        rows = torch.stack([row_of(index) for index in good])
        optimizer.zero_grad()
        ((model(rows).squeeze(1) - rows.sum(1)) ** 2).mean().backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def share(plan: Plan, position: int, rank: int) -> list[int]:
    return [int(index) for index in order(plan).indices(position, rank, 2)]


def test_the_ranks_end_alike_and_where_training_without_the_bad_samples_ends(runs: list[Run]) -> None:
    for run in runs:
        first, second = run.ranks
        assert first["weights"] == second["weights"]
        assert first["step"] == second["step"]
        assert first["position"] == second["position"] == run.plan.total
        ended = torch.tensor(first["weights"], dtype=torch.float64)
        torch.testing.assert_close(ended, by_hand(run.plan), rtol=1e-6, atol=0)


def test_each_sample_that_is_left_out_is_counted_and_has_a_letter_with_its_source(runs: list[Run]) -> None:
    run, faults = runs[0], uneven().faults
    out_of_reach = {index for index, fault in faults.items() if fault in {"stands in", "source"}}
    assert run.ranks[0]["skipped"] == 6 * 3  # in each of three epochs; what is out of reach is counted apart
    assert run.ranks[0]["synthetic"] == 2 * 3
    letters = read_sample_letters(run.folder / "dead_letters")
    assert {letter.index for letter in letters} == set(faults)
    assert {letter.index for letter in letters if letter.kind is BadKind.OUT_OF_REACH} == out_of_reach
    assert {letter.source for letter in letters} == {f"shard-{index // 10}" for index in faults}
    assert {letter.kind for letter in letters} == {*BadKind} - {BadKind.TOO_LONG, BadKind.WORKER_DIED}


def test_a_batch_without_a_real_sample_on_any_rank_leaves_no_trace_and_does_not_stop_the_run(runs: list[Run]) -> None:
    assert runs[1].ranks[0]["step"] == 7
    events = read_ledger(runs[1].folder / "ledger.jsonl").events
    (refused,) = [event for event in events if event.kind == "batch_refused"]
    assert (refused.data["reason"], refused.data["position"]) == ("not one real sample on any rank", 2)


def test_three_bad_samples_of_ten_thousand_on_one_rank_warn_and_keep_the_ranks_in_step(runs: list[Run]) -> None:
    run = runs[2]
    for rank in run.ranks:
        assert (rank["step"], rank["position"]) == (50, 50)
        assert (rank["skipped"], rank["met"], rank["warning"], rank["stopped"]) == (3, 10_000, True, "")
    letters = read_sample_letters(run.folder / "dead_letters")
    assert [(letter.rank, letter.position) for letter in letters] == [(1, 3), (1, 20), (1, 41)]
    assert [letter.index for letter in letters] == list(run.plan.faults)


@pytest.mark.parametrize(("every", "stops"), [(100, True), (10_000, False)])
def test_more_than_a_thousandth_of_bad_samples_stops_the_run_in_words(
    tmp_path: Path, *, every: int, stops: bool
) -> None:
    faults = dict.fromkeys(range(0, 10_000, every), "raises")
    plan = Plan(size=10_000, batch=200, total=50, learning_rate=0.01, faults=faults, min_samples=5_000)
    ended = trained(tmp_path, plan, SoloRank())
    assert ("stop: too much of the data is refused" in str(ended["stopped"])) == stops
    assert (ended["position"] == 50) != stops


def test_workers_that_die_change_nothing_about_where_a_run_ends(tmp_path: Path) -> None:
    plan = Plan(workers=2, total=8, faults={5: "killed", 17: "raises"})
    ended = trained(tmp_path, plan, SoloRank())
    weights = torch.tensor(ended["weights"], dtype=torch.float64)
    torch.testing.assert_close(weights, by_hand(plan), rtol=1e-9, atol=0)
    kinds = [event.kind for event in read_ledger(tmp_path / "ledger.jsonl").events]
    assert kinds.count("loader_worker_died") == 2


def test_a_run_of_which_not_one_sample_can_be_loaded_stops_in_words(tmp_path: Path) -> None:
    ended = trained(tmp_path, Plan(faults=dict.fromkeys(range(48), "raises")), SoloRank())
    assert "not one sample could be loaded" in str(ended["stopped"])
    assert "ValueError: sample" in str(ended["stopped"])
