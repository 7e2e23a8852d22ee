from __future__ import annotations

import pickle
import random
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.errors import ArtifactMissingError, ConfigError, SampleError, SourceError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.health.lifecycle import Move
from failsoft.training.loading.arrow_reader import ArrowReader
from failsoft.training.loading.cache import CachePolicy, LocalCache
from failsoft.training.loading.deadline import Deadline
from failsoft.training.loading.layout import ShardLayout, write_shards
from failsoft.training.loading.local import LocalShards
from failsoft.training.loading.quarantine import Gate, Quarantine, QuarantinePolicy
from failsoft.training.loading.remote import ByteReader, FsspecReader, RemotePolicy, RemoteSource

BODIES = [f"sample {index} ".encode() * (index % 5) for index in range(25)]


@pytest.fixture
def layout(tmp_path: Path) -> ShardLayout:
    return write_shards(BODIES, tmp_path / "shards", samples_per_shard=10)


class Flaky:
    """A file system that fails as often as it is told, by raising, cutting short or changing bytes."""

    def __init__(self, layout: ShardLayout, *troubles: str) -> None:
        self._root = layout.folder
        self.troubles = list(troubles)
        self.reads = 0

    def read(self, path: str, *, first: int, length: int) -> bytes:
        self.reads += 1
        data = (self._root / path).read_bytes()[first : first + length]
        match self.troubles.pop(0) if self.troubles else "":
            case "raises":
                raise ConnectionResetError("by peer")
            case "short":
                return data[:-1]
            case "changed":
                return bytes([data[0] ^ 1]) + data[1:]
            case "hangs":
                threading.Event().wait()
        return data


def remote(layout: ShardLayout, *troubles: str, tries: int = 3, timeout_s: float = 30.0) -> tuple[RemoteSource, Flaky]:
    flaky = Flaky(layout, *troubles)
    policy = RemotePolicy(tries=tries, timeout_s=timeout_s)
    return RemoteSource(flaky, layout, policy=policy, clock=ManualClock()), flaky


@pytest.mark.parametrize("reader", [FsspecReader, ArrowReader])
def test_each_sample_comes_whole_through_fsspec_and_pyarrow(
    layout: ShardLayout, reader: type[FsspecReader] | type[ArrowReader]
) -> None:
    url = layout.folder.as_uri()
    made: ByteReader = FsspecReader(url=url) if reader is FsspecReader else ArrowReader(uri=url)
    source = RemoteSource(made, layout)
    assert [source.fetch(index) for index in range(len(source))] == BODIES
    again = pickle.loads(pickle.dumps(source))  # noqa: S301 -- as it travels to a worker, from this very test
    assert again.fetch(7) == BODIES[7]


def test_local_shards_are_checked_too_and_say_which_file_is_ill(layout: ShardLayout) -> None:
    source = LocalShards(layout)
    assert [source.fetch(index) for index in range(25)] == BODIES
    shard = layout.folder / "shard-000001.bin"
    source.close()
    shard.write_bytes(b"x" + shard.read_bytes()[1:])
    with pytest.raises(SampleError, match=r"shard-000001.bin are changed"):
        [source.fetch(index) for index in range(10, 20)]
    source.close()
    shard.unlink()
    with pytest.raises(SourceError, match=r"shard-000001.bin: .*No such file"):
        source.fetch(12)
    source.close()


@pytest.mark.parametrize("trouble", ["raises", "short", "changed"])
def test_a_passing_trouble_is_tried_again_and_costs_nothing_else(layout: ShardLayout, trouble: str) -> None:
    source, flaky = remote(layout, trouble, trouble)
    assert source.fetch(3) == BODIES[3]
    assert flaky.reads == 3


@pytest.mark.parametrize(
    ("trouble", "error", "said"),
    [
        ("raises", SourceError, "shard-000000.bin: ConnectionResetError: by peer"),
        ("short", SampleError, "gave 26 of 27 bytes"),
        ("changed", SampleError, "are changed"),
    ],
)
def test_a_lasting_trouble_says_whether_the_source_or_the_sample_is_to_blame(
    layout: ShardLayout, trouble: str, error: type[Exception], said: str
) -> None:
    source, flaky = remote(layout, *[trouble] * 3)
    with pytest.raises(error, match=said):
        source.fetch(3)
    assert flaky.reads == 3


def test_a_read_that_hangs_is_cut_off_and_the_next_try_goes_on(layout: ShardLayout) -> None:
    source, flaky = remote(layout, "hangs", timeout_s=0.05)
    assert source.fetch(3) == BODIES[3]
    assert flaky.reads == 2


def test_when_too_many_reads_hang_nothing_new_is_begun_until_one_comes_back() -> None:
    gate, deadline = threading.Event(), Deadline(0.02, max_hung=2)
    for _ in range(2):
        with pytest.raises(SourceError, match=r"no answer within 0\.02 s"):
            deadline.call(gate.wait)
    with pytest.raises(SourceError, match="2 reads hang"):
        deadline.call(lambda: None)
    gate.set()
    while deadline.hung:
        gate.wait(0.01)
    assert deadline.call(lambda: 5) == 5
    deadline.close()


def test_a_layout_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissingError, match="lacks an array"):
        len(ShardLayout(tmp_path))
    with pytest.raises(ConfigError, match="timeout_s is nan"):
        RemotePolicy(timeout_s=float("nan"))


def test_a_cache_gives_what_it_was_given_and_takes_damage_for_absence(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path / "cache", CachePolicy(max_bytes=10_000))
    assert cache.fetch(5) is None
    cache.keep(5, b"five")
    cache.keep(6, b"")
    assert (cache.fetch(5), cache.fetch(6)) == (b"five", b"")
    (file,) = tmp_path.glob("cache/*/5.sample")
    file.write_bytes(file.read_bytes()[:-1])
    assert cache.fetch(5) is None
    assert cache.damaged == 1
    assert not file.exists()


@settings(max_examples=25)
@given(sizes=st.lists(st.integers(0, 400), min_size=1, max_size=80))
def test_a_cache_stays_within_its_bound(sizes: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    cache = LocalCache(tmp_path_factory.mktemp("cache"), CachePolicy(max_bytes=4000))
    for index, size in enumerate(sizes):
        cache.keep(index, bytes(size))
        assert cache.size_bytes() <= 4000 + 4000 // 64
    assert cache.fetch(len(sizes) - 1) == bytes(sizes[-1])


def test_a_giant_sample_does_not_empty_the_cache(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path, CachePolicy(max_bytes=4000))
    for index in range(10):
        cache.keep(index, bytes(200))
    cache.keep(99, bytes(3990))
    assert cache.fetch(99) is None
    assert all(cache.fetch(index) == bytes(200) for index in range(10))
    assert cache.refused == 1


def test_two_that_fill_tear_and_empty_one_cache_at_once_never_give_wrong_bytes(tmp_path: Path) -> None:
    """Another process may write, tear, evict or remove the whole folder between any two steps of this one."""
    chance = random.Random(3)
    first, second = (LocalCache(tmp_path / "cache", CachePolicy(max_bytes=2500)) for _ in range(2))
    bodies = {index: bytes([index]) * (100 + index) for index in range(20)}
    given = 0

    def trouble() -> None:
        files = sorted((tmp_path / "cache").glob("*/*.sample"))
        if files and chance.random() < 0.3:
            torn = chance.choice(files)
            torn.write_bytes(torn.read_bytes()[: chance.randrange(40)])
        if chance.random() < 0.02:
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)

    for _ in range(600):
        cache, index = chance.choice((first, second)), chance.randrange(20)
        found = cache.fetch(index)
        assert found in {None, bodies[index]}
        given += found is not None
        if found is None:
            cache.keep(index, bodies[index])
        trouble()
    assert given > 100
    assert first.damaged + second.damaged > 20


def test_a_disk_that_refuses_costs_the_cache_and_no_sample(tmp_path: Path) -> None:
    blocked = tmp_path / "cache"
    blocked.write_text("a file stands where the folder should be")
    cache = LocalCache(blocked, CachePolicy(max_bytes=100))
    cache.keep(1, b"one")
    assert cache.fetch(1) is None
    assert cache.refused == 1


def quarantine(clock: ManualClock) -> tuple[Quarantine, list[Move[Gate]]]:
    moves: list[Move[Gate]] = []
    policy = QuarantinePolicy(rest=BackoffPolicy(first_s=10.0, factor=2.0, cap_s=30.0, jitter_fraction=0.0))
    return Quarantine(policy, clock, random.Random(0), moves.append), moves


def test_three_failures_in_a_row_put_a_source_to_rest_and_one_probe_brings_it_back() -> None:
    clock = ManualClock()
    breaker, moves = quarantine(clock)
    for _ in range(2):
        breaker.failed("no route")
    breaker.answered()
    for _ in range(3):
        assert breaker.admits()
        breaker.failed("no route")
    assert not breaker.admits()
    clock.advance(10.0)
    assert breaker.admits()
    breaker.answered()
    assert [move.after for move in moves] == [Gate.OPEN, Gate.PROBING, Gate.CLOSED]
    assert moves[0].why == "3 bad outcomes in a row; last: no route"


def test_each_probe_that_fails_makes_the_rest_longer_up_to_a_cap() -> None:
    clock = ManualClock()
    breaker, _ = quarantine(clock)
    for _ in range(3):
        breaker.failed("no route")
    rests = []
    for _ in range(4):
        rests.append(breaker.rest_s)
        clock.advance(breaker.rest_s)
        assert breaker.admits()
        breaker.failed("no route")
    assert rests == [10.0, 20.0, 30.0, 30.0]


def test_a_source_that_fails_half_of_the_time_rests_although_never_three_times_in_a_row() -> None:
    breaker, _ = quarantine(ManualClock())
    for _ in range(10):
        breaker.answered()
        breaker.failed("slow")
    assert breaker.gate is Gate.OPEN
