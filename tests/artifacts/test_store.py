"""Published folders are seen whole or not at all, and damage never stops the walk to the last good one."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from failsoft.artifacts.manifest import Manifest
from failsoft.artifacts.store import ArtifactStore, write_durably
from failsoft.errors import ArtifactError, ArtifactMissingError, ConfigError, DamagedArtifactError
from failsoft.health.clock import ManualClock
from tests.conftest import ROOT


def fill(folder: Path) -> None:
    (folder / "weights").write_bytes(b"0123456789")


class Shop:
    """A store with a hand-set clock, and the damage that it told of."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        self.store = ArtifactStore(root, self.clock, kind="checkpoint")
        self.damage: list[str] = []

    def publish(self, *names: str) -> None:
        for name in names:
            self.clock.advance(1.0)
            self.store.publish(name, fill, meta={"step": len(name), "healthy": not name.startswith("ill")})

    def newest(self) -> str | None:
        found = self.store.newest(on_damage=lambda name, _why: self.damage.append(name))
        return found.name if found else None


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "store")


def flip(shop: Shop, name: str, file: str = "weights") -> None:
    path = shop.store.root / name / file
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


def test_what_was_published_opens_verified(shop: Shop) -> None:
    shop.publish("a")
    assert (shop.store.open("a").path / "weights").read_bytes() == b"0123456789"


def test_a_writer_that_raises_leaves_nothing(shop: Shop) -> None:
    def disk_full(folder: Path) -> None:
        fill(folder)
        raise OSError(28, "No space left on device")

    shop.publish("old")
    with pytest.raises(OSError, match="No space"):
        shop.store.publish("new", disk_full, meta={})
    assert [path.name for path in shop.store.root.iterdir()] == ["old"]
    assert shop.newest() == "old"


KILLED = """
import os, signal, sys
from pathlib import Path
from failsoft.artifacts import store as module
from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import ManualClock

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def fill(folder):
    (folder / "weights").write_bytes(b"half")
    if sys.argv[2] == "writing":
        die()

if sys.argv[2] != "writing":
    setattr(module, sys.argv[2], die)
ArtifactStore(Path(sys.argv[1]), ManualClock(), kind="checkpoint").publish("new", fill, meta={})
"""


@pytest.mark.parametrize("moment", ["writing", "describe", "write_synced", "sync_tree"])
def test_a_writer_killed_at_any_moment_leaves_nothing_that_is_seen(shop: Shop, moment: str) -> None:
    """T23, T30: the torn or uncommitted one was chosen as newest elsewhere."""
    shop.publish("old")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "platform")}
    done = subprocess.run([sys.executable, "-c", KILLED, str(shop.store.root), moment], check=False, env=environment)
    assert done.returncode == -signal.SIGKILL
    assert [artifact.name for artifact in shop.store.listing()] == ["old"]
    assert (shop.newest(), shop.damage) == ("old", [])
    assert shop.store.sweep_orphans() == 1
    assert [path.name for path in shop.store.root.iterdir()] == ["old"]


def test_a_flipped_byte_puts_the_newest_aside_and_the_one_before_is_used(shop: Shop) -> None:
    shop.publish("a", "b", "c")
    flip(shop, "c")
    assert (shop.newest(), shop.damage) == ("b", ["c"])
    assert [path.name.partition("-")[0] for path in (shop.store.root / "quarantine").iterdir()] == ["c"]
    assert (shop.newest(), shop.damage) == ("b", ["c"])


@pytest.mark.parametrize("harm", ["cut", "gone", "no manifest", "torn manifest", "extra"])
def test_each_kind_of_damage_is_put_aside(shop: Shop, harm: str) -> None:
    shop.publish("a", "b")
    folder = shop.store.root / "b"
    if harm == "cut":
        (folder / "weights").write_bytes(b"")
    elif harm == "gone":
        (folder / "weights").unlink()
    elif harm == "no manifest":
        (folder / "manifest.json").unlink()
    elif harm == "torn manifest":
        (folder / "manifest.json").write_text("{")
    else:
        (folder / "rules.yaml").write_text("planted: true")
    assert (shop.newest(), shop.damage) == ("a", ["b"])


@pytest.mark.parametrize("part", ["manifest.json", "weights"])
def test_one_that_cannot_be_read_just_now_is_not_damaged_and_stays(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    shop.publish("a", "b")
    real = Path.stat

    def stale(path: Path, **options: bool) -> os.stat_result:
        if path.name == part:
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(path, **options)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "stat", stale)
        with pytest.raises(OSError, match="Stale"):
            shop.newest()
    assert (shop.newest(), shop.damage) == ("b", [])


def test_when_all_are_damaged_there_is_none_and_no_crash(shop: Shop) -> None:
    shop.publish("a", "b")
    for name in ("a", "b"):
        flip(shop, name)
    assert shop.newest() is None
    assert sorted(shop.damage) == ["a", "b"]


def test_a_damaged_one_that_another_process_put_aside_first_is_no_trouble(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas that start together meet the same damage."""
    shop.publish("a", "b")
    flip(shop, "b")

    def beaten(path: Path, _target: Path) -> Path:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "rename", beaten)
    assert shop.newest() == "a"


def test_one_that_its_writer_removes_for_a_newer_one_while_it_is_read_is_no_damage(shop: Shop) -> None:
    shop.publish("a")

    def overtaken(_manifest: Manifest) -> bool:
        if not (shop.store.root / "b").exists():
            shop.publish("b")
            shop.store.remove("a")
        return True

    found = shop.store.newest(accept=overtaken, on_damage=lambda name, _why: shop.damage.append(name))
    assert (found and found.name, shop.damage) == ("b", [])


def test_a_reader_that_is_always_overtaken_says_so_instead_of_finding_none(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.publish("a")
    [gone] = shop.store.listing()
    shop.store.remove("a")
    monkeypatch.setattr(shop.store, "listing", lambda: [gone])
    with pytest.raises(ArtifactMissingError, match="removed while it was being read"):
        shop.newest()


def test_the_newest_is_told_by_the_manifest_and_not_by_names_or_file_times(shop: Shop) -> None:
    shop.publish("z", "a")
    os.utime(shop.store.root / "z")
    assert [artifact.name for artifact in shop.store.listing()] == ["z", "a"]
    assert shop.newest() == "a"
    shop.publish("longest")
    by_step = shop.store.newest(order=lambda manifest: -float(manifest.meta["step"]))
    assert by_step is not None
    assert by_step.name in {"z", "a"}


def test_one_that_is_not_accepted_is_passed_over_and_stays(shop: Shop) -> None:
    shop.publish("well", "ill")
    found = shop.store.newest(accept=lambda manifest: bool(manifest.meta["healthy"]))
    assert found is not None
    assert found.name == "well"
    assert (shop.store.root / "ill").is_dir()


def test_of_two_publishers_of_one_name_the_second_hears_that_it_is_taken(shop: Shop) -> None:
    def overtaken(folder: Path) -> None:
        fill(folder)
        if not (shop.store.root / "same").exists():
            shop.publish("same")

    with pytest.raises(ArtifactError, match="never changes"):
        shop.store.publish("same", overtaken, meta={"second": True})
    assert "second" not in shop.store.open("same").manifest.meta
    assert [path.name for path in shop.store.root.iterdir()] == ["same"]


def test_a_published_name_is_never_written_again(shop: Shop) -> None:
    shop.publish("a")
    with pytest.raises(ArtifactError, match="already published"):
        shop.store.publish("a", fill, meta={})


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", ".hidden", "quarantine", "a\x00", "a" * 200, "a b"])
def test_a_name_that_is_no_plain_file_name_is_refused(shop: Shop, name: str) -> None:
    for call in (lambda: shop.store.open(name), lambda: shop.store.publish(name, fill, meta={})):
        with pytest.raises(ConfigError):
            call()


def test_a_missing_name_says_what_is_there(shop: Shop) -> None:
    shop.publish("a")
    with pytest.raises(ArtifactMissingError, match="there: a"):
        shop.store.open("b")
    assert ArtifactStore(shop.store.root / "nowhere", shop.clock, kind="release").newest() is None


def test_one_of_another_kind_is_refused(shop: Shop) -> None:
    shop.publish("a")
    with pytest.raises(DamagedArtifactError, match="not a release"):
        ArtifactStore(shop.store.root, shop.clock, kind="release").open("a")


def test_a_removed_one_is_gone(shop: Shop) -> None:
    shop.publish("a", "b")
    shop.store.remove("b")
    assert [path.name for path in shop.store.root.iterdir()] == ["a"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "plan.json"
    write_durably(path, b"one")
    write_durably(path, b"two")
    assert path.read_bytes() == b"two"

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_durably(path, b"three")
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in path.parent.iterdir()] == ["plan.json"]


def test_a_device_or_a_pipe_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    """As ``--json /dev/stdout`` and ``--html /dev/null``, typed by root in a container."""
    pipe, said = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: said.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_durably(pipe, b"a report")
    reader.join(30.0)
    assert (said, pipe.is_fifo(), os.listdir(tmp_path)) == ([b"a report"], True, ["pipe"])
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    write_durably(null, b"a report")
    assert (null.is_symlink(), null.is_char_device(), Path("/dev/null").is_char_device()) == (True, True, True)


def test_a_link_goes_on_to_lead_where_it_led(tmp_path: Path) -> None:
    there, link = tmp_path / "elsewhere" / "report.json", tmp_path / "report.json"
    there.parent.mkdir()
    link.symlink_to(there)
    for word in (b"first", b"second"):
        write_durably(link, word)
        assert (link.is_symlink(), there.read_bytes()) == (True, word)
