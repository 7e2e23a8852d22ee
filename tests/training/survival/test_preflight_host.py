"""The run's folder and the memory, as a node sees them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from failsoft.health.clock import ManualClock
from failsoft.training.survival.preflight import Finding, NodeReport, Outcome, failed, passed
from failsoft.training.survival.preflight_faults import NodeFault, NodeFaultKind, faults_of
from failsoft.training.survival.preflight_host import (
    SPACE,
    bytes_needed,
    disk_answers,
    memory_is_left,
    space_is_left,
    storage_trouble,
    write_through,
)

HUGE_BYTES = 1 << 60


def test_a_disk_that_answers_is_left_as_it_was_found(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "first"
    found = disk_answers(folder, "a1", ManualClock())
    assert found.outcome is Outcome.PASSED, found.why
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "said"),
    [(NodeFaultKind.READ_ONLY_DISK, "Read-only file system"), (NodeFaultKind.FULL_DISK, "No space left on device")],
)
def test_a_disk_that_refuses_fails_in_its_own_words(tmp_path: Path, kind: NodeFaultKind, said: str) -> None:
    struck = faults_of("a1b2", [NodeFault(kind=kind, node="a1")])
    found = disk_answers(tmp_path, "a1b2", ManualClock(), struck.write)
    assert found.outcome is Outcome.FAILED
    assert said in found.why
    assert str(tmp_path) in found.why


def test_a_disk_that_is_mounted_read_only_is_named_and_not_what_could_not_be_removed_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *_args: object, **_options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self))  # Linux: also of what is not there

    monkeypatch.setattr(Path, "unlink", refuse)
    struck = faults_of("a1", [NodeFault(kind=NodeFaultKind.READ_ONLY_DISK, node="a1")])
    found = disk_answers(tmp_path, "a1", ManualClock(), struck.write)
    assert found.why == f"{tmp_path}: Read-only file system; mend the disk or mount it for writing"


def test_a_disk_that_loses_a_byte_is_caught(tmp_path: Path) -> None:
    def lossy(path: Path, content: bytes) -> None:
        write_through(path, content[:-1] + b"?")

    found = disk_answers(tmp_path, "a1", ManualClock(), lossy)
    assert found.outcome is Outcome.FAILED
    assert "other bytes" in found.why


def test_space_is_judged_on_the_disk_that_a_folder_yet_to_come_will_lie_on(tmp_path: Path) -> None:
    assert space_is_left(tmp_path / "not" / "yet", 1).outcome is Outcome.PASSED
    found = space_is_left(tmp_path / "not" / "yet", HUGE_BYTES)
    assert found.outcome is Outcome.FAILED
    assert "make room there" in found.why


def node(name: str, *findings: Finding) -> NodeReport:
    return NodeReport(node=name, host=name, findings=(passed("matmul"), *findings))


def test_a_folder_that_fails_on_each_node_is_the_storage_s_fault_and_one_that_fails_on_some_is_theirs() -> None:
    full, fine = failed(SPACE, "3 MiB free"), passed(SPACE)
    assert storage_trouble([node("a", full), node("b", full)]) == {SPACE: "3 MiB free"}
    assert storage_trouble([node("a", full)]) == {SPACE: "3 MiB free"}
    assert storage_trouble([node("a", full), node("b", fine)]) == {}
    assert storage_trouble([]) == {}
    assert node("a", full).without([SPACE]).passed
    assert not node("a", full, failed("memory", "none")).without([SPACE]).passed


def test_the_largest_checkpoint_sets_what_must_be_free_and_small_ones_do_not(tmp_path: Path) -> None:
    for name, size in (("one", 100), ("two", 4000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state").write_bytes(bytes(size))
    assert bytes_needed(tmp_path, 2.0, 1000) == 8000
    assert bytes_needed(tmp_path, 2.0, 10_000) == 10_000
    assert bytes_needed(tmp_path / "none", 2.0, 1000) == 1000


@pytest.mark.parametrize(("free", "outcome"), [(None, Outcome.NOT_HERE), (511, Outcome.FAILED), (512, Outcome.PASSED)])
def test_memory_is_judged_by_what_is_free_and_an_unknown_amount_is_no_pass(free: int | None, outcome: Outcome) -> None:
    assert memory_is_left(512, lambda: free).outcome is outcome
