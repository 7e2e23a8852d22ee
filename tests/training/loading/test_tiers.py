from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from failsoft.errors import ConfigError, SampleError, SourceError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.training.degradation import Degradations
from failsoft.training.loading.cache import CachePolicy, LocalCache
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.news import SourceNews
from failsoft.training.loading.quarantine import QuarantinePolicy
from failsoft.training.loading.sample import Ask, BadKind
from failsoft.training.loading.share import FillPolicy, SyntheticShare
from failsoft.training.loading.tiered_dataset import TieredDataset
from failsoft.training.loading.tiers import Source, TieredSource
from failsoft.training.ranks import SoloRank
from failsoft.training.samples import SampleCount
from failsoft.training.state import TrainingState, flatten, unflatten

REST = BackoffPolicy(first_s=10.0, factor=2.0, cap_s=60.0, jitter_fraction=0.0)
POLICY = QuarantinePolicy(rest=REST)


class Store:
    """A remote that is up or down, with ten samples a shard; some shards may be ill."""

    name = "remote"

    def __init__(self) -> None:
        self.up = True
        self.ill: set[str] = set()
        self.asked = 0

    def shard_of(self, index: int) -> str:
        return f"shard-{index // 10}"

    def fetch(self, index: int) -> bytes:
        self.asked += 1
        if not self.up:
            raise SourceError("connection refused")
        if self.shard_of(index) in self.ill:
            raise SampleError("bytes are changed")
        return str(index).encode()


class Zeros:
    def make(self, _index: int) -> bytes:
        return b"0"


def tiers(*sources: Source, clock: ManualClock, synthesis: Zeros | None = None) -> TieredSource:
    return TieredSource(tiers=sources, synthesis=synthesis, tier_policy=POLICY, shard_policy=POLICY, clock=clock)


def test_what_the_remote_gives_fills_the_cache_which_is_asked_first_from_then_on(tmp_path: Path) -> None:
    store, cache = Store(), LocalCache(tmp_path, CachePolicy(max_bytes=10_000))
    source = tiers(cache, store, clock=ManualClock())
    assert [source.fetch(3).tier for _ in range(3)] == ["remote", "cache", "cache"]
    assert store.asked == 1


def test_losing_the_remote_goes_on_from_the_cache_and_synthetic_fill_and_its_return_is_noticed(tmp_path: Path) -> None:
    clock, store, cache = ManualClock(), Store(), LocalCache(tmp_path, CachePolicy(max_bytes=10_000))
    source = tiers(cache, store, clock=clock, synthesis=Zeros())
    for index in range(5):
        source.fetch(index)
    store.up = False
    found = [source.fetch(index) for index in range(12)]
    assert [item.tier for item in found] == ["cache"] * 5 + ["synthetic"] * 7
    assert all(item.synthetic == (item.tier == "synthetic") for item in found)
    assert store.asked == 5 + 3  # after three failures nobody asks any more
    assert "remote rests: 3 bad outcomes in a row; last: connection refused" in found[-1].why
    clock.advance(10.0)
    store.up = True
    assert source.fetch(11).tier == "remote"
    lost, back = (note for note in source.take_notes() if note.name == "remote")
    assert (lost.resting, lost.instead, lost.rest_s) == (True, "synthetic samples of weight 0", 10.0)
    assert (back.resting, back.cause) == (False, "it answers again")
    assert source.take_notes() == ()


def test_a_shard_that_is_ill_rests_alone() -> None:
    clock, store = ManualClock(), Store()
    store.ill = {"shard-1"}
    source = tiers(store, clock=clock)
    for index in range(10, 13):
        with pytest.raises(SampleError):
            source.fetch(index)
    with pytest.raises(SourceError, match="remote rests: 3 bad outcomes in a row; last: bytes are changed"):
        source.fetch(13)
    assert source.fetch(25).data == b"25"
    assert [note.name for note in source.take_notes()] == ["remote: shard-1"]
    store.ill = set()
    clock.advance(10.0)
    assert source.fetch(13).data == b"13"


def test_without_synthesis_a_sample_out_of_reach_is_bad_and_nothing_is_said_against_it() -> None:
    store = Store()
    store.up = False
    dataset = TieredDataset(tiers(store, clock=ManualClock()), float, size=100)
    batch = Checked(dataset).load(Ask(position=0, indices=(1, 2)))
    assert [bad.kind for bad in batch.bad] == [BadKind.OUT_OF_REACH] * 2
    assert batch.bad[0].source == "shard-0"


def test_a_synthetic_sample_arrives_flagged_at_weight_0() -> None:
    store = Store()
    store.ill = set()
    source = tiers(store, clock=ManualClock(), synthesis=Zeros())
    checked = Checked(TieredDataset(source, lambda data: torch.tensor(float(data)), size=100))
    checked.load(Ask(position=0, indices=(4,)))
    store.up = False
    batch = checked.load(Ask(position=1, indices=(5, 6)))
    assert batch.data.tolist() == [0.0, 0.0]
    assert batch.real == 0
    assert [sample.index for sample in batch.synthetic] == [5, 6]


def test_the_same_bad_sample_again_and_again_says_nothing_new_of_its_shard(tmp_path: Path) -> None:
    """From the second epoch on the cache gives all others, so the remote is asked for the bad one alone."""

    class OneWrong(Store):
        def fetch(self, index: int) -> bytes:
            if index == 3:
                raise SampleError("bytes are changed")
            return super().fetch(index)

    source = tiers(LocalCache(tmp_path, CachePolicy(max_bytes=10_000)), OneWrong(), clock=ManualClock())
    for _epoch in range(6):
        for index in (*range(3), *range(4, 9)):
            source.fetch(index)
        with pytest.raises(SampleError):
            source.fetch(3)
    assert source.fetch(9).tier == "remote"
    assert source.take_notes() == ()


def test_a_shard_that_is_wholly_cached_is_tried_again_after_its_rest_and_is_back(tmp_path: Path) -> None:
    clock, store, cache = ManualClock(), Store(), LocalCache(tmp_path, CachePolicy(max_bytes=10_000))
    source = tiers(cache, store, clock=clock)
    for index in range(10):
        source.fetch(index)
    store.ill = {"shard-1"}
    for index in range(10, 13):
        with pytest.raises(SampleError):
            source.fetch(index)
    store.ill = set()
    for index in range(10, 20):
        cache.keep(index, str(index).encode())  # by another worker
    assert [note.resting for note in source.take_notes()] == [True]
    asked = store.asked
    assert {source.fetch(index).tier for index in range(20)} == {"cache"}
    assert store.asked == asked  # it rests
    clock.advance(10.0)
    assert {source.fetch(index).tier for index in range(20)} == {"cache"}
    assert store.asked == asked + 1  # one of its own samples, once
    assert [(note.name, note.resting) for note in source.take_notes()] == [("remote: shard-1", False)]


def test_a_tier_that_is_still_down_costs_what_is_cached_one_question_after_each_rest(tmp_path: Path) -> None:
    clock, store, cache = ManualClock(), Store(), LocalCache(tmp_path, CachePolicy(max_bytes=10_000))
    source = tiers(cache, store, clock=clock, synthesis=Zeros())
    cache.keep(0, b"0")
    store.up = False
    for index in range(1, 4):
        source.fetch(index)
    asked = store.asked
    for rest_s in (10.0, 20.0, 40.0, 60.0, 60.0):  # less and less often, up to the cap
        clock.advance(rest_s)
        assert {source.fetch(0).tier for _ in range(5)} == {"cache"}
        asked += 1
        assert store.asked == asked
    assert all(note.resting for note in source.take_notes())


def test_a_tiered_source_travels_to_a_worker(tmp_path: Path) -> None:
    source = TieredSource(tiers=(LocalCache(tmp_path, CachePolicy(max_bytes=100)), Store()))
    assert pickle.loads(pickle.dumps(source)).fetch(4).data == b"4"  # noqa: S301 -- made in this very test
    with pytest.raises(ConfigError, match="tiers is empty"):
        TieredSource(tiers=())


def test_an_outage_that_many_workers_see_is_one_event_and_ends_when_all_have_it_back() -> None:
    told: list[tuple[str, str, dict[str, object]]] = []
    news = SourceNews(Degradations(lambda kind, why, **data: told.append((kind, why, data)), rank=1))
    store, clock = Store(), ManualClock()
    workers = [tiers(store, clock=clock, synthesis=Zeros()) for _ in range(2)]
    store.up = False
    for number, worker in enumerate(workers):
        for index in range(4):
            worker.fetch(index)
        news.heard(number, worker.take_notes(), position=5)
    store.up = True
    clock.advance(10.0)
    for number, worker in enumerate(workers):
        assert [kind for kind, _, _ in told] == ["degradation_began", "degradation_began"]  # the tier and the shard
        worker.fetch(0)
        news.heard(number, worker.take_notes(), position=5)
    assert [kind for kind, _, _ in told][2:] == ["degradation_ended", "degradation_ended"]
    began = next(data for _, _, data in told if data["name"] == "remote")
    assert began["degradation"] == "source_tier"
    assert (began["rank"], began["position"]) == (1, 5)
    assert began["way_back"] == "tried again after 10 s, then less and less often"


def test_an_outage_ends_for_the_run_when_the_only_worker_that_saw_it_died() -> None:
    told: list[str] = []
    news = SourceNews(Degradations(lambda kind, why, **data: told.append(kind)))
    store = Store()
    store.up = False
    worker = tiers(store, clock=ManualClock(), synthesis=Zeros())
    for index in range(4):
        worker.fetch(index)
    news.heard(0, worker.take_notes(), position=5)
    news.died(0, position=6)
    assert told == ["degradation_began"] * 2 + ["degradation_ended"] * 2


def test_the_share_of_synthetic_samples_is_alarmed_first_and_stops_a_run_when_it_lasts() -> None:
    share = SyntheticShare()
    share.met(99_000, synthetic=500)
    assert not share.alarming
    share.met(1_000, synthetic=1_000)
    assert (share.alarming, share.too_much) == (True, False)
    share.met(40_000, synthetic=40_000)
    assert (share.alarming, share.too_much) == (True, True)
    assert share.in_words().startswith("41,500 of 140,000 samples (29.643 %) are synthetic; alarms above 1.000 %")


def test_the_share_of_synthetic_samples_goes_on_over_a_restart(tmp_path: Path) -> None:
    before, after = (SampleCount(object(), SoloRank()) for _ in range(2))
    before.share.met(30_000, synthetic=600)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    saved = flatten(TrainingState(model=model, optimizer=optimizer, samples=before))
    unflatten(saved, TrainingState(model=model, optimizer=optimizer, samples=after), with_breaker=True)
    assert after.share.alarming
    assert after.share.in_words() == before.share.in_words()
    del saved.scalars["samples"]  # a checkpoint from before there was one
    unflatten(saved, TrainingState(model=model, optimizer=optimizer, samples=after), with_breaker=True)
    assert after.share.alarming


def test_a_short_outage_in_a_short_run_does_not_stop_it() -> None:
    share = SyntheticShare()
    share.met(10_000, synthetic=10_000)
    assert not share.too_much
    with pytest.raises(ConfigError, match="warn_bad_fraction"):
        FillPolicy(share=POLICY.health)
