from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from failsoft.errors import ConfigError, LoaderError
from failsoft.training.batches import GlobalBatches
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.lane import LoaderPolicy
from failsoft.training.loading.loader import GuardedLoader
from failsoft.training.loading.order import RankOrder
from failsoft.training.loading.sample import BadKind, GuardedBatch
from tests.training.loading.data import RowData

BATCHES = GlobalBatches(num_samples=40, global_batch=8, seed=2)
TOTAL = 10


class Told:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, object]]] = []

    def __call__(self, kind: str, why: str, **data: object) -> None:
        self.events.append((kind, why, data))


def loader_of(faults: dict[int, str] | None = None, *, told: Told | None = None, **settings: object) -> GuardedLoader:
    order = RankOrder(batches=BATCHES, rank=0, world=1, total=TOTAL)
    policy = LoaderPolicy(**({"workers": 2, "look_every_s": 0.1} | settings))  # type: ignore[arg-type]
    checked = Checked(RowData(40, faults), reserve=order.reserve)
    return GuardedLoader(checked, order, policy=policy, tell=told)


def indices(position: int) -> tuple[int, ...]:
    return tuple(BATCHES.global_indices(position).tolist())


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="module")
def undisturbed() -> Iterator[list[GuardedBatch]]:
    with loader_of(workers=0) as loader:
        yield [loader.fetch(position) for position in range(TOTAL)]


def same(ours: GuardedBatch, theirs: GuardedBatch) -> bool:
    return ours.indices == theirs.indices and torch.equal(ours.data["x"], theirs.data["x"])


def test_workers_give_the_same_batches_as_none_from_any_position_on(undisturbed: list[GuardedBatch]) -> None:
    with loader_of() as loader:
        for position in [0, 1, 2, 3, 8, 9, 2, 3, 5, 0]:  # forward, over a gap, and back
            assert same(loader.fetch(position), undisturbed[position])
        with pytest.raises(LoaderError, match="position 10 is beyond the 10 of the run"):
            loader.fetch(TOTAL)
        assert same(loader.fetch(4), undisturbed[4])


def test_batches_that_people_put_back_on_the_list_are_loaded_too() -> None:
    with loader_of(workers=1) as loader:
        assert loader.fetch(TOTAL, (3, 1)).data["index"].tolist() == [3, 1]
        assert loader.fetch(0, (5, 6)).data["index"].tolist() == [5, 6]
        assert loader.fetch(1, indices(1)).indices == indices(1)
        assert loader.fetch(2, (7,), counted=False).real == 0


def test_a_sample_that_kills_its_worker_twice_is_bad_and_named_and_the_run_goes_on() -> None:
    killer, told = indices(1)[3], Told()
    with loader_of({killer: "killed"}, told=told) as loader:
        batches = [loader.fetch(position) for position in range(5)]
    (bad,) = batches[1].bad
    assert (bad.index, bad.kind) == (killer, BadKind.WORKER_DIED)
    assert bad.why.startswith("2 workers died of it; the last killed by SIGKILL")
    assert [batch.real for batch in batches] == [8, 7, 8, 8, 8]
    assert [kind for kind, _, _ in told.events] == ["loader_worker_died"] * 2
    for _, why, data in told.events:
        assert why == (
            f"loader worker {data['pid']} killed by SIGKILL (out of memory? see the kernel's log), on sample {killer}; "
            "another one takes its place"
        )
        assert data["source"] == f"shard-{killer // 10}"
        assert data["position"] == 1


def test_a_worker_that_hangs_is_ended_and_its_sample_named() -> None:
    sample, told = indices(0)[2], Told()
    with loader_of({sample: "hangs"}, told=told, workers=1, hang_after_s=4.0) as loader:
        batch = loader.fetch(0)
    assert [bad.index for bad in batch.bad] == [sample]
    assert "hung for 4 s" in batch.bad[0].why
    assert all(not alive(int(str(data["pid"]))) for _, _, data in told.events)


def test_a_worker_killed_from_outside_costs_no_sample(undisturbed: list[GuardedBatch]) -> None:
    told = Told()
    with loader_of(told=told) as loader:
        for position in range(TOTAL):
            if position == 3:
                for pid in loader.worker_pids():
                    os.kill(pid, signal.SIGTERM)
            assert same(loader.fetch(position), undisturbed[position])
    assert len(told.events) <= 2
    assert all("SIGTERM" in why for _, why, _ in told.events)


def test_a_death_is_found_where_its_batch_is_waited_for_and_raises_nowhere_else() -> None:
    """torch's own loader would raise from its handler of SIGCHLD, in whatever line the training happens to be."""
    with loader_of(workers=1, start_method="spawn") as loader:  # its workers are children, so their deaths send signals
        loader.fetch(0)
        (pid,) = loader.worker_pids()
        os.kill(pid, signal.SIGKILL)
        while alive(pid):
            np.ones(1000).sum()  # the signal arrives between any two lines
        assert loader.fetch(1).real == 8


def test_deaths_without_end_stop_the_run_in_words() -> None:
    faults = dict.fromkeys(range(40), "leaves")
    with (
        loader_of(faults, workers=1, max_deaths_in_a_row=2) as loader,
        pytest.raises(
            LoaderError, match=r"3 loader workers died in a row, the last one left with status 7, on sample \d+"
        ),
    ):
        loader.fetch(0)


def test_nothing_is_left_when_the_loader_is_closed_in_mid_epoch() -> None:
    with loader_of({indices(3)[0]: "hangs"}) as loader:
        loader.fetch(0)
        loader.fetch(1)
        pids = loader.worker_pids()
        assert len(pids) == 2
    assert [pid for pid in pids if alive(pid)] == []


def test_starting_and_losing_workers_draws_nothing_from_the_trainings_generators() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with loader_of({indices(0)[0]: "killed"}) as loader:
        loader.fetch(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_can_not_be_sent_to_a_worker_is_refused_in_words_before_the_run() -> None:
    order = RankOrder(batches=BATCHES, rank=0, world=1, total=TOTAL)
    with pytest.raises(ConfigError, match="define their functions at the top of a module"):
        GuardedLoader(Checked(RowData(4), collate=lambda rows: rows), order, policy=LoaderPolicy(workers=1))
    with pytest.raises(ConfigError, match="start_method is 'telepathy'"):
        LoaderPolicy(start_method="telepathy")
    with pytest.raises(ConfigError, match="hang_after_s is nan"):
        LoaderPolicy(hang_after_s=float("nan"))
