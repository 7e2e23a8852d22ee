"""The writer as a real process: what it writes, what it survives, what it costs others when it does not."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.retention import Last
from failsoft.training.checkpoints.writer import CheckpointWriter, writer_behind
from failsoft.training.checkpoints.writer_link import ProcessLink
from failsoft.training.checkpoints.writer_news import NewsKind, Ticket
from failsoft.training.checkpoints.writer_policy import WriterPolicy
from failsoft.training.checkpoints.writer_succession import until_free
from tests.conftest import ROOT


class Office:
    """A real writer; ``link`` is the process that is at work now."""

    def __init__(self, folder: Path) -> None:
        self.links: list[ProcessLink] = []
        self.store = ArtifactStore(folder / "checkpoints", SystemClock(), kind="checkpoint")
        policy = WriterPolicy(patience_s=60.0)
        self.writer = CheckpointWriter(self.store, rules=(Last(count=2),), policy=policy, start=self.start)

    def start(self) -> ProcessLink:
        self.links.append(ProcessLink())
        return self.links[-1]

    def offer(self, position: int, *, numbers: int = 1000) -> None:
        meta = {"position": position, "step": position, "healthy": True}
        ticket = Ticket(name=f"at-{position}", position=position, step=position, meta=meta)
        self.writer.offer(ticket, {"w": torch.full((numbers,), float(position))}, b'{"format": 2}')

    def signal(self, which: signal.Signals) -> None:
        self.links[-1].process.send_signal(which)

    def told(self) -> list[NewsKind]:
        return [news.kind for news in self.writer.look()]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path)
    yield office
    office.writer.close()
    assert all(link.process.poll() is not None for link in office.links)


def test_what_was_handed_over_is_published_verified_and_old_ones_go(office: Office) -> None:
    for position in (1, 2, 3):
        office.offer(position)
        office.writer.drain()
    assert office.told() == [NewsKind.PUBLISHED] * 3
    assert [artifact.name for artifact in office.store.listing()] == ["at-2", "at-3"]
    newest = office.store.open("at-3")
    assert torch.equal(load_file(newest.path / "state.safetensors")["w"], torch.full((1000,), 3.0))
    assert newest.manifest.meta["parent"] == "at-2"


def test_the_state_handed_over_is_that_of_the_moment_whatever_training_does_next(office: Office) -> None:
    weights = torch.zeros(200_000)
    ticket = Ticket(name="a", position=1, step=1, meta={})
    office.writer.offer(ticket, {"w": weights}, b"{}")
    weights.fill_(9.0)
    office.writer.drain()
    assert not load_file(office.store.open("a").path / "state.safetensors")["w"].any()


def test_a_paused_writer_holds_up_nobody_and_the_newest_waits(office: Office) -> None:
    office.offer(1)
    office.writer.drain()
    office.signal(signal.SIGSTOP)
    for position in (2, 3, 4):
        office.offer(position)
    assert office.told() == [NewsKind.PUBLISHED, NewsKind.REPLACED]
    office.signal(signal.SIGCONT)
    office.writer.drain()
    assert office.told() == [NewsKind.PUBLISHED] * 2
    assert office.store.open("at-4").manifest.meta["parent"] == "at-2"


def test_a_killed_writer_is_followed_by_another_that_does_the_work(office: Office) -> None:
    office.offer(1)
    office.writer.drain()
    office.signal(signal.SIGSTOP)
    office.offer(2)
    office.signal(signal.SIGKILL)
    office.writer.drain()
    assert office.told() == [NewsKind.PUBLISHED, NewsKind.LOST, NewsKind.PUBLISHED]
    assert office.store.open("at-2").manifest.meta["position"] == 2
    assert len(office.links) == 2


def test_a_disk_that_is_full_for_the_writer_costs_one_checkpoint(office: Office) -> None:
    office.offer(1)
    office.writer.drain()
    pid = office.links[-1].process.pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    office.offer(2)
    office.writer.drain()
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    office.offer(3)
    office.writer.drain()
    news = office.writer.look()
    assert [(one.kind, one.ticket.position) for one in news] == [
        (NewsKind.PUBLISHED, 1),
        (NewsKind.FAILED, 2),
        (NewsKind.PUBLISHED, 3),
    ]
    assert "File too large" in news[1].why
    assert sorted(path.name for path in office.store.root.iterdir()) == [".writer", "at-1", "at-3"]


def test_a_folder_that_vanished_is_made_anew(office: Office) -> None:
    office.offer(1)
    office.writer.drain()
    office.store.root.rename(office.store.root.with_name("elsewhere"))
    office.offer(2)
    office.writer.drain()
    assert office.told() == [NewsKind.PUBLISHED] * 2
    assert [artifact.name for artifact in office.store.listing()] == ["at-2"]


def test_a_folder_that_cannot_be_written_costs_the_checkpoint(office: Office) -> None:
    office.store.root.write_text("a file where the folder should be", "utf-8")
    office.offer(1)
    office.writer.drain()
    assert office.told() == [NewsKind.FAILED]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_writer_that_is_told_to_leave_with_all_processes_stays_for_the_last_checkpoint(
    office: Office, number: signal.Signals
) -> None:
    office.offer(1)
    office.writer.drain()
    office.signal(number)
    office.offer(2)
    office.writer.drain()
    assert office.told() == [NewsKind.PUBLISHED] * 2


def test_a_process_that_was_forked_meanwhile_does_not_hold_the_end_up(office: Office) -> None:
    office.offer(1)
    office.writer.drain()
    context = multiprocessing.get_context("fork")
    over = context.Event()
    loader = context.Process(target=over.wait, daemon=True)
    loader.start()
    try:
        office.writer.close()
        assert office.links[-1].process.returncode == 0
    finally:
        over.set()
        loader.join()


DIES_WHILE_A_FORK_LIVES_ON = """
import os, sys, time
from failsoft.training.checkpoints.writer_link import ProcessLink

link = ProcessLink()
fork = os.fork()
if fork == 0:
    for handle in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), handle)
    time.sleep(300.0)
print(link.process.pid, fork, flush=True)
os._exit(0)
"""


def test_a_writer_ends_with_its_training_although_a_fork_of_it_lives_on() -> None:
    command = [sys.executable, "-W", "ignore", "-c", DIES_WHILE_A_FORK_LIVES_ON]
    done = subprocess.run(command, cwd=ROOT, check=True, timeout=120, stdout=subprocess.PIPE, text=True)
    writer, fork = (int(number) for number in done.stdout.split())
    try:
        until_s = SystemClock().monotonic_s() + 90.0
        while at_work(writer) and SystemClock().monotonic_s() < until_s:
            SystemClock().sleep_s(0.05)
        assert (at_work(writer), at_work(fork)) == (False, True)
    finally:
        os.kill(fork, signal.SIGKILL)


def at_work(process: int) -> bool:
    """Whether a process, maybe nobody's child any more, is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


DIES_AFTER_HANDING_OVER = """
import os, signal, sys
from pathlib import Path
import torch
from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.writer import writer_behind
from failsoft.training.checkpoints.writer_news import Ticket

store = ArtifactStore(Path(sys.argv[1]), SystemClock(), kind="checkpoint")
writer = writer_behind(store, SystemClock())
ticket = Ticket(name="last", position=1, step=1, meta={"position": 1, "healthy": True})
writer.offer(ticket, {"w": torch.ones(3_000_000)}, b"{}")
while not (store.root / ".writer").exists():  # the writer has begun
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_handed_over_outlives_the_training_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DIES_AFTER_HANDING_OVER, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=False, timeout=120, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == -signal.SIGKILL
    assert until_free(tmp_path, SystemClock(), patience_s=60.0)
    assert ArtifactStore(tmp_path, SystemClock(), kind="checkpoint").open("last").manifest.meta["position"] == 1


def test_the_writer_loads_neither_torch_nor_ray() -> None:
    program = "import sys, failsoft.training.checkpoints.writer_process; print({'torch', 'ray'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_writer_that_was_never_used_leaves_nothing(tmp_path: Path) -> None:
    writer = writer_behind(ArtifactStore(tmp_path, SystemClock(), kind="checkpoint"), SystemClock())
    writer.close()
    assert (list(tmp_path.iterdir()), writer.held_bytes) == ([], 0)
