"""Samples read in ranges from a live S3 server."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from failsoft.errors import SampleError, SourceError
from failsoft.health.backoff import BackoffPolicy
from failsoft.training.loading.arrow_reader import ArrowReader
from failsoft.training.loading.layout import ShardLayout, write_shards
from failsoft.training.loading.remote import RemotePolicy, RemoteSource
from tests.s3_server import BUCKET, S3, Environ, serving_s3

BODIES = [f"sample {index} ".encode() * (1 + index % 5) for index in range(25)]
SHARD = "shard-000001.bin"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with serving_s3() as server:
        yield server


@pytest.fixture
def layout(s3: S3, tmp_path: Path) -> ShardLayout:
    """Its shards lie on S3 alone."""
    made = write_shards(BODIES, tmp_path / "shards", samples_per_shard=10)
    for path in sorted(made.folder.glob("*.bin")):
        s3.client.put_object(Bucket=BUCKET, Key=f"samples/{path.name}", Body=path.read_bytes())
        path.unlink()
    return made


def source_of(s3: S3, layout: ShardLayout, **limits: float) -> RemoteSource:
    wait = BackoffPolicy(first_s=0.01, cap_s=0.01)
    policy = RemotePolicy(tries=2, wait=wait, timeout_s=limits.get("timeout_s", 60.0))
    return RemoteSource(ArrowReader(uri=s3.url("samples")), layout, policy=policy)


def test_each_sample_comes_whole_also_in_another_process(s3: S3, layout: ShardLayout) -> None:
    source = source_of(s3, layout)
    assert [source.fetch(index) for index in range(len(source))] == BODIES
    again = pickle.loads(pickle.dumps(source))  # noqa: S301 -- as it travels to a worker, from this very test
    assert again.fetch(7) == BODIES[7]


def test_an_object_that_was_changed_or_is_gone_is_a_sample_or_a_source_that_failed(s3: S3, layout: ShardLayout) -> None:
    source = source_of(s3, layout)
    body = s3.client.get_object(Bucket=BUCKET, Key=f"samples/{SHARD}")["Body"].read()
    s3.client.put_object(Bucket=BUCKET, Key=f"samples/{SHARD}", Body=b"x" + body[1:])
    with pytest.raises(SampleError, match=f"{SHARD} are changed"):
        source.fetch(10)
    assert source.fetch(11) == BODIES[11]
    s3.client.delete_object(Bucket=BUCKET, Key=f"samples/{SHARD}")
    with pytest.raises(SourceError, match=SHARD):
        source.fetch(11)
    assert source.fetch(3) == BODIES[3]


def test_a_request_that_hangs_is_asked_again(s3: S3, layout: ShardLayout) -> None:
    def reads_the_shard(environ: Environ) -> bool:
        return environ["REQUEST_METHOD"] == "GET" and str(environ["PATH_INFO"]).endswith(SHARD)

    source = source_of(s3, layout, timeout_s=2.0)
    assert source.fetch(10) == BODIES[10]
    s3.gate.hold(reads_the_shard)
    try:
        assert source.fetch(12) == BODIES[12]
        assert s3.gate.reached.is_set()
    finally:
        s3.gate.opened.set()
