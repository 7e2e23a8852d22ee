"""The mirror as a real process, on a mounted folder and on addresses that nobody answers at."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from failsoft.artifacts.remote_place import place_of
from failsoft.artifacts.remote_store import RemoteStore
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.mirror import Mirror
from failsoft.training.checkpoints.mirror_policy import MirrorPolicy
from failsoft.training.checkpoints.retention import Last
from failsoft.training.checkpoints.writer_link import MIRROR, ProcessLink
from failsoft.training.checkpoints.writer_news import NewsKind, Ticket
from tests.conftest import ROOT

BYTES = 9 * 1024 * 1024


class Office:
    """A real mirror onto ``file://``; ``links`` are its processes."""

    def __init__(self, folder: Path, *, patience_s: float = 60.0, tries: int = 3) -> None:
        self.links: list[ProcessLink] = []
        self.url = f"file://{folder}/there"
        self.store = ArtifactStore(folder / "checkpoints", SystemClock(), kind="checkpoint")
        backoff = BackoffPolicy(first_s=0.05, cap_s=0.05, jitter_fraction=0.0)
        self.mirror = Mirror(
            self.store,
            self.url,
            clock=SystemClock(),
            rng=random.Random(1),
            policy=MirrorPolicy(patience_s=patience_s, backoff=backoff, tries_to_read=tries),
            rules=(Last(count=2),),
            start=self.start,
        )

    def start(self) -> ProcessLink:
        self.links.append(ProcessLink(MIRROR))
        return self.links[-1]

    def offer(self, position: int) -> None:
        meta = {"position": position, "step": position, "healthy": True}

        def fill(folder: Path) -> None:
            (folder / "weights").write_bytes(os.urandom(BYTES))

        self.store.publish(f"at-{position}", fill, meta=meta)
        self.mirror.offer(Ticket(name=f"at-{position}", position=position, step=position, meta=meta))

    def told(self) -> list[NewsKind]:
        return [news.kind for news in self.mirror.look()]

    def there(self) -> list[str]:
        remote = RemoteStore(place_of(self.url), kind="checkpoint")
        shelf = remote.shelf()
        assert shelf.unfinished == ()
        assert [remote.verify(one) for one in shelf.there] == [None] * len(shelf.there)
        return [one.name for one in shelf.there]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path)
    yield office
    office.mirror.part()
    for link in office.links:
        link.process.wait(20)


def test_published_checkpoints_are_copied_and_the_oldest_go(office: Office) -> None:
    for position in (1, 2, 3):
        office.offer(position)
        assert office.mirror.drain(within_s=60.0)
    assert office.told() == [NewsKind.MIRRORED] * 3
    assert office.there() == ["at-2", "at-3"]
    assert len(office.links) == 1


def test_a_killed_process_is_followed_by_another_that_does_the_work(office: Office) -> None:
    office.offer(1)
    office.links[0].process.send_signal(signal.SIGKILL)
    assert office.mirror.drain(within_s=60.0)
    assert office.told() == [NewsKind.MIRROR_FAILED, NewsKind.MIRRORED]
    assert office.there() == ["at-1"]


def test_a_process_that_hangs_is_killed_and_followed_by_another(tmp_path: Path) -> None:
    office = Office(tmp_path, patience_s=3.0)
    office.mirror.ask_listing().poll(60.0)  # it stands before it is stopped
    office.links[0].process.send_signal(signal.SIGSTOP)
    office.offer(1)
    assert office.mirror.drain(within_s=60.0)
    assert office.told() == [NewsKind.MIRROR_FAILED, NewsKind.MIRRORED]
    assert office.links[0].process.poll() == -signal.SIGKILL
    office.mirror.part()
    office.links[-1].process.wait(20)


def test_a_copy_that_was_begun_is_finished_without_the_training(office: Office) -> None:
    office.mirror.ask_listing().poll(60.0)
    office.offer(1)
    office.mirror.part()
    office.links[0].process.wait(60)
    assert office.there() == ["at-1"]


def test_an_address_that_nobody_answers_at_is_a_failure_and_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    office = Office(tmp_path, tries=1)
    office.mirror.url = "s3://bucket/prefix?endpoint_override=127.0.0.1:9&scheme=http&region=x"
    request = office.mirror.ask_listing()
    assert request.poll(60.0)
    with pytest.raises(OSError, match="bucket"):
        request.result()
    office.mirror.part()
    office.links[-1].process.wait(20)


def test_the_training_loads_no_library_of_a_store() -> None:
    program = (
        "import sys, failsoft.training.checkpoints.mirror; "
        "print({'pyarrow', 'fsspec', 'torch', 'ray'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_process_that_copies_loads_neither_torch_nor_ray() -> None:
    program = "import sys, failsoft.training.checkpoints.mirror_process; print({'torch', 'ray'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("url", ["", "bucket/prefix", "/mnt/nfs", "s3://", "file://"])
def test_what_is_no_address_is_refused_with_examples(url: str) -> None:
    with pytest.raises(ConfigError, match=r"s3://bucket/prefix"):
        place_of(url)


def test_a_secret_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID") as caught:
        place_of("s3://key:hunter2@bucket/prefix")
    assert "hunter2" not in str(caught.value)


def test_a_store_that_nothing_here_speaks_to_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="nothing here speaks to nosuchthing://x/y"):
        place_of("nosuchthing://x/y")
