"""Checkpoints on a live S3 server: copied, killed in mid-upload, gone on from; shards of several ranks."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from failsoft.artifacts.remote_assembly import RemoteAssembly
from failsoft.artifacts.remote_place import place_of
from failsoft.artifacts.remote_store import RemoteStore
from failsoft.artifacts.store import ArtifactStore
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.landing import Landing
from failsoft.training.checkpoints.mirror import Mirror, listing_of
from failsoft.training.checkpoints.mirror_policy import MirrorPolicy
from failsoft.training.checkpoints.mirror_work import MirrorWork
from failsoft.training.checkpoints.retention import Last
from failsoft.training.checkpoints.shard_layout import ShardPlace, shard_file
from failsoft.training.checkpoints.shard_writing import Around
from failsoft.training.checkpoints.writer_link import MIRROR, ProcessLink
from failsoft.training.checkpoints.writer_news import NewsKind, Ticket
from failsoft.training.checkpoints.writer_order import Order, carry_out
from tests.s3_server import BUCKET, PATIENCE_S, S3, Environ, serving_s3
from tests.training.checkpoints.test_shard_writing import tensors

BYTES = 24 * 1024 * 1024
"""Several parts of a multipart upload."""


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with serving_s3() as server:
        yield server


class Run:
    """Publishes on a disk of its own; a real process copies to S3."""

    def __init__(self, folder: Path, url: str) -> None:
        self.links: list[ProcessLink] = []
        self.url = url
        self.store = ArtifactStore(folder / "checkpoints", SystemClock(), kind="checkpoint")
        self.mirror = Mirror(
            self.store,
            url,
            clock=SystemClock(),
            rng=random.Random(1),
            policy=MirrorPolicy(backoff=BackoffPolicy(first_s=0.05, cap_s=0.05)),
            rules=(Last(count=2),),
            start=self.start,
        )

    def start(self) -> ProcessLink:
        self.links.append(ProcessLink(MIRROR))
        return self.links[-1]

    def publish(self, position: int) -> None:
        meta = {"position": position, "step": position, "healthy": True}

        def fill(folder: Path) -> None:
            (folder / "weights").write_bytes(position.to_bytes(4, "big") * (BYTES // 4))

        self.store.publish(f"at-{position}", fill, meta=meta)
        self.mirror.offer(Ticket(name=f"at-{position}", position=position, step=position, meta=meta))

    def there(self) -> list[int]:
        """Positions of what counts there; every byte is read."""
        remote = RemoteStore(place_of(self.url), kind="checkpoint")
        shelf = remote.shelf()
        assert [remote.verify(one) for one in shelf.there] == [None] * len(shelf.there)
        return sorted(int(one.manifest.meta["position"]) for one in shelf.there)

    def done(self) -> None:
        self.mirror.part()
        for link in self.links:
            link.process.wait(PATIENCE_S)


def second_part(environ: Environ) -> bool:
    return environ["REQUEST_METHOD"] == "PUT" and "partNumber=2" in environ["QUERY_STRING"]


def test_a_copy_that_is_killed_in_mid_upload_is_not_there_and_the_next_try_makes_it_whole(
    s3: S3, tmp_path: Path
) -> None:
    run = Run(tmp_path, s3.url("killed"))
    try:
        run.publish(1)
        assert run.mirror.drain(within_s=PATIENCE_S)
        s3.gate.hold(second_part)
        run.publish(2)
        assert s3.gate.reached.wait(PATIENCE_S)
        run.links[-1].process.kill()
        run.links[-1].process.wait(PATIENCE_S)
        s3.gate.opened.set()
        assert s3.uploads() == 1  # nobody sees it; a rule of the bucket's life cycle would clear it
        assert run.there() == [1]
        assert run.mirror.drain(within_s=PATIENCE_S)
        kinds = [news.kind for news in run.mirror.look()]
        assert kinds == [NewsKind.MIRRORED, NewsKind.MIRROR_FAILED, NewsKind.MIRRORED]
        assert run.there() == [1, 2]
    finally:
        s3.gate.opened.set()
        run.done()


@pytest.mark.parametrize("way", ["copy", "shard"])
def test_an_upload_takes_no_more_into_memory_than_the_store_keeps_up_with(s3: S3, tmp_path: Path, way: str) -> None:
    """Else a slow store costs the memory of a whole file, and who watches the upload hears nothing for minutes."""
    store = ArtifactStore(tmp_path, SystemClock(), kind="checkpoint")
    content, beats = bytes(2 * BYTES), list[int]()

    def fill(folder: Path) -> None:
        (folder / "w").write_bytes(content)

    whole = store.publish("at-1", fill, meta={"position": 1})
    place = place_of(s3.url(f"slow-{way}"))

    def upload() -> None:
        if way == "copy":
            RemoteStore(place, kind="checkpoint").put(whole, beat=lambda: beats.append(1))
        else:
            RemoteAssembly(place, "at-1.x").put("w", memoryview(content), beat=lambda: beats.append(1))

    s3.gate.hold(second_part)
    thread = threading.Thread(target=upload)
    thread.start()
    try:
        assert s3.gate.reached.wait(PATIENCE_S)
        thread.join(0.5)
        assert len(beats) < 6  # of 12 pieces
    finally:
        s3.gate.opened.set()
        thread.join(PATIENCE_S)
    assert len(beats) >= 12


def test_an_empty_machine_lists_what_is_there_and_brings_the_newest(s3: S3, tmp_path: Path) -> None:
    run = Run(tmp_path / "first", s3.url("fetched"))
    other = Run(tmp_path / "second", s3.url("fetched"))
    try:
        for position in (1, 2, 3):
            run.publish(position)
            assert run.mirror.drain(within_s=PATIENCE_S)
        assert run.there() == [2, 3]  # the rules of keeping hold there
        listing = other.mirror.ask_listing()
        assert listing.poll(PATIENCE_S)
        newest = listing_of(listing.result()).entries[0]
        fetching = other.mirror.ask_fetch(newest.folder)
        assert fetching.poll(PATIENCE_S)
        assert fetching.result()["say"] == "fetched"
        brought, ours = other.store.open("at-3"), run.store.open("at-3")
        assert brought.manifest.digest == ours.manifest.digest
        assert (brought.path / "weights").read_bytes() == (ours.path / "weights").read_bytes()
    finally:
        run.done()
        other.done()


def test_shards_of_two_ranks_meet_there_and_each_is_brought_alone(s3: S3, tmp_path: Path) -> None:
    url, name = s3.url("shards"), "position-000000000001"
    landing = Landing(url=url, folder=f"{name}.0123456789abcdef")
    store = ArtifactStore(tmp_path / "disk", SystemClock(), kind="checkpoint")
    for rank in (1, 0):
        assert [one for one in s3.keys("shards") if one.endswith("manifest.json")] == []
        content = tensors(rank, 1)
        scalars = json.dumps({"position": 1, "step": 1}).encode() if rank == 0 else b""
        order = Order(
            root=str(store.root),
            kind="checkpoint",
            name=name,
            meta={"healthy": True, "position": 1, "step": 1},
            tensors_bytes=len(content),
            scalars_bytes=len(scalars),
            shard=ShardPlace(rank=rank, world=2, attempt="one", landing=landing),
        )
        carry_out(order, memoryview(content + scalars), store, around=Around(clock=SystemClock()))
    files = [shard_file(rank, 2) for rank in range(2)]
    assert s3.keys("shards") == [f"{landing.folder}/{name}" for name in ("manifest.json", *files, "state.json")]
    into = tmp_path / "parts"
    part = {"do": "part", "url": url, "root": str(store.root), "kind": "checkpoint", "what": landing.folder}
    answer = MirrorWork(place_of, SystemClock()).answer(
        part | {"rules": [], "files": [files[1]], "into": str(into)}, lambda: None
    )
    assert answer["say"] == "fetched", answer
    assert (into / files[1]).read_bytes() == tensors(1, 1)
    assert not (into / files[0]).exists()


def test_a_bucket_that_is_not_there_is_told_as_a_refusal_and_not_as_an_empty_one(s3: S3, tmp_path: Path) -> None:
    url = s3.url("x").replace(f"//{BUCKET}/", "//nobody-has-it/")
    order = {"do": "copy", "url": url, "root": str(tmp_path), "kind": "checkpoint", "what": "at-1", "rules": []}
    Run(tmp_path, url).store.publish("at-1", lambda folder: (folder / "w").touch(), meta={"position": 1})
    answer = MirrorWork(place_of, SystemClock()).answer(
        order | {"root": str(tmp_path / "checkpoints"), "files": []}, lambda: None
    )
    assert answer["say"] == "refused"
    assert "nobody-has-it" in answer["why"]
