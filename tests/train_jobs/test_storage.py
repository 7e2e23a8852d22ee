"""Storage that is away between attempts, seen from the supervisor: waited for, said, counted, and given up in words."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.home import Home
from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import ConfigError, PreemptedError, StorageAwayError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Event, Ledger, Side, read_ledger
from failsoft.health.ledger_files import Tail
from failsoft.training.checkpoints.driver_lock import sole_driver
from failsoft.training.survival.supervise import RestartPolicy
from train_jobs.attempts import Attempts
from train_jobs.storage import Storage, StoragePolicy

BACKOFF = BackoffPolicy(jitter_fraction=0.0)


class Clock(ManualClock):
    """Tells of each time that passes."""

    then: Callable[[], None] = staticmethod(lambda: None)

    def sleep_s(self, duration_s: float) -> None:
        super().sleep_s(duration_s)
        self.then()


class Desk:
    """A run of 30 batches whose storage the test takes away, by renaming its folder, and brings back."""

    def __init__(self, root: Path, *, patience_s: float = 600.0, told: Callable[[], bool] = lambda: False) -> None:
        self.home, self.clock, self.said = Home(root=root / "mount"), Clock(), list[str]()
        self.clock.then = self.come_back
        self.ledger = Ledger(self.home.ledger, self.clock, side=Side.TRAINING, subject="run")
        self.mount, self.aside = root / "mount", root / "aside"
        self.storage = Storage(
            self.home.run("run"),
            clock=self.clock,
            rng=random.Random(1),
            ledger=self.ledger,
            backoff=BACKOFF,
            policy=StoragePolicy(patience_s=patience_s),
            say=self.hear,
            told=told,
        )
        self.returns_at_s = 0.0
        self.attempts = Attempts(
            home=self.home, run="run", clock=self.clock, total_batches=lambda: 30, storage=self.storage
        )

    def hear(self, said: str) -> None:
        self.said.append(said)

    def take_away(self, until_s: float) -> None:
        """An empty folder is left, as by a mount that is gone."""
        self.mount.rename(self.aside)
        self.mount.mkdir()
        self.returns_at_s = until_s

    def come_back(self) -> None:
        if self.aside.exists() and self.clock.monotonic_s() >= self.returns_at_s:
            self.mount.rmdir()
            self.aside.rename(self.mount)

    def leave_checkpoint(self, position: int) -> None:
        store = self.home.checkpoints("run", self.clock)
        meta = {"position": position, "step": position, "healthy": True}
        store.publish(f"position-{position:012d}", lambda folder: folder.joinpath("x").touch(), meta=meta)

    def events(self, kind: str) -> list[Event]:
        return [event for event in read_ledger(self.home.ledger).events if event.kind == kind]


def test_a_mount_that_goes_during_an_attempt_is_waited_for_and_the_run_goes_on_from_its_checkpoint(
    tmp_path: Path,
) -> None:
    with sole_driver(Home(root=tmp_path / "mount").run("run")):
        desk = Desk(tmp_path)
        script = iter(["loses its storage", "finishes"])

        def run_once() -> str | None:
            if next(script) == "finishes":
                desk.leave_checkpoint(30)
                return None
            desk.leave_checkpoint(10)
            desk.take_away(until_s=35.0)
            return "a worker died"

        desk.attempts.until_done(run_once, policy=RestartPolicy(backoff=BACKOFF), rng=random.Random(1))
    (back,) = desk.events("storage_back")
    assert (back.data["tries"], back.data["waits"], back.data["away_s"]) == (2, 1, 40.0)  # 10 s, then 30 s
    assert [event.data["progressed"] for event in desk.events("attempt_failed")] == [True]
    assert len(desk.events("attempt_began")) == 2
    assert desk.said[0].startswith("waits up to 600 s for the run's storage: ")
    assert len(desk.said) == 2


def test_storage_that_stays_away_ends_the_supervisor_with_the_next_command(tmp_path: Path) -> None:
    with sole_driver(Home(root=tmp_path / "mount").run("run")):
        desk = Desk(tmp_path)

        def run_once() -> str | None:
            desk.take_away(until_s=float("inf"))
            return "a worker died"

        with pytest.raises(StorageAwayError, match=r"600 s \(10 tries\).*then start the same command again"):
            desk.attempts.until_done(run_once, policy=RestartPolicy(backoff=BACKOFF), rng=random.Random(1))
    assert desk.clock.monotonic_s() == pytest.approx(600.0)
    assert len(desk.said) == 1


def test_a_run_that_is_told_to_leave_does_not_wait_for_its_storage(tmp_path: Path) -> None:
    with sole_driver(Home(root=tmp_path / "mount").run("run")):
        desk = Desk(tmp_path, told=lambda: desk.clock.monotonic_s() >= 5.0)
        desk.take_away(until_s=float("inf"))
        with pytest.raises(PreemptedError, match="while the run's storage was away"):
            desk.storage.reached(lambda: None)
    assert desk.clock.monotonic_s() == pytest.approx(5.0)


def test_a_ledger_that_cannot_be_read_is_waited_for_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, looks, read = Desk(tmp_path), list[Tail](), Tail.file_by_file

    def stale_once(tail: Tail) -> Iterator[list[bytes]]:
        looks.append(tail)
        if len(looks) == 2:
            raise OSError(116, "Stale file handle")
        return read(tail)

    monkeypatch.setattr(Tail, "file_by_file", stale_once)

    def run_once() -> str | None:
        desk.leave_checkpoint(30)
        return None

    desk.attempts.until_done(run_once, policy=RestartPolicy(backoff=BACKOFF), rng=random.Random(1))
    assert len(desk.events("storage_back")) == 1
    assert desk.clock.monotonic_s() == 10.0


def test_checkpoints_that_cannot_be_read_are_waited_for_and_cost_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, tries = Desk(tmp_path), list[str]()
    newest = ArtifactStore.newest

    def stale_for_a_while(store: ArtifactStore, **how: Any) -> Artifact | None:
        if tries and desk.clock.monotonic_s() < 40.0:
            raise OSError(5, "Input/output error")
        return newest(store, **how)

    monkeypatch.setattr(ArtifactStore, "newest", stale_for_a_while)

    def run_once() -> str | None:
        tries.append("attempt")
        desk.leave_checkpoint(30)
        return None

    desk.attempts.until_done(run_once, policy=RestartPolicy(backoff=BACKOFF), rng=random.Random(1))
    assert tries == ["attempt"]
    assert desk.events("attempt_failed") == []
    assert [event.data["tries"] for event in desk.events("storage_back")] == [2]
    assert len(desk.events("run_finished")) == 1


def test_an_error_that_is_not_of_storage_goes_on_its_way_at_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with pytest.raises(ZeroDivisionError):
        desk.storage.reached(lambda: 1 // 0)
    assert desk.clock.monotonic_s() == 0.0


def test_a_patience_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="patience_s of the storage is nan"):
        StoragePolicy(patience_s=float("nan"))
