from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.training.snapshots.host_memory import available_ram_bytes
from failsoft.training.snapshots.snapshot_memory import RankNote, SnapshotMemory, objection
from failsoft.training.snapshots.snapshot_place import SnapshotPlace

GB = 1_000_000_000


def note(rank: int, *, host: str = "a", needed: int = 0, available: int | None = None, digest: str = "d") -> RankNote:
    return RankNote(rank=rank, host=host, digest=digest, needed_bytes=needed, available_bytes=available)


def test_ranks_of_one_machine_are_added_up() -> None:
    alone = [note(0, needed=6 * GB, available=10 * GB), note(1, host="b", needed=6 * GB, available=10 * GB)]
    assert objection(alone, max_ram_fraction=0.9) is None
    together = [note(0, needed=6 * GB, available=10 * GB), note(1, needed=6 * GB, available=10 * GB)]
    said = objection(together, max_ram_fraction=0.9)
    assert said is not None
    for words in ("12000000000 bytes (12 GB)", "two buffers of 2 rank(s) on a", "10 GB", "RANK_ZERO", "SHARDED"):
        assert words in said


def test_unknown_memory_refuses_nothing() -> None:
    assert objection([note(0, needed=10**15)], max_ram_fraction=0.9) is None


def test_one_rank_s_problem_is_everybody_s() -> None:
    ill = RankNote(rank=1, host="a", digest="", problem="x is sparse")
    assert objection([note(0), ill], max_ram_fraction=0.9) == "rank 1: x is sparse"


def test_ranks_that_hold_other_tensors_are_named() -> None:
    said = objection([note(0), note(1, digest="e"), note(2)], max_ram_fraction=0.9)
    assert said is not None
    assert "ranks [1] differ from rank 0 (e / d)" in said


def test_a_note_survives_the_way_to_another_rank() -> None:
    assert RankNote.from_json(note(3, needed=5, available=7).to_json()) == note(3, needed=5, available=7)


@pytest.mark.parametrize(
    ("available", "words"), [(40 * GB, "5.0% of the RAM available is still to be taken"), (None, "available unknown")]
)
def test_the_report_is_a_sentence(available: int | None, words: str) -> None:
    report = SnapshotMemory(
        place=SnapshotPlace.SHARDED,
        rank=1,
        world=4,
        held_bytes=2 * GB,
        most_bytes=4 * GB,
        most_bytes_by_place={SnapshotPlace.SHARDED: 4 * GB},
        pinned_bytes=2 * GB,
        available_bytes=available,
    )
    assert f"{report}" == (
        f"RAM snapshots (sharded) of rank 1 of 4: 2 GB held, 2 GB of it pinned, at most 4 GB; "
        f"{'RAM ' if available is None else ''}{words}"
    )
    assert report.as_dict()["share_of_available"] == (None if available is None else 0.05)


def machine(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


MEMINFO = "MemTotal: 90 kB\nMemAvailable: 64 kB\n"


def test_without_a_group_the_machine_s_free_memory_counts(tmp_path: Path) -> None:
    assert available_ram_bytes(machine(tmp_path, {"proc/meminfo": MEMINFO})) == 64 * 1024


@pytest.mark.parametrize(("limit", "free"), [("50000", 50000 - 30000 + 4000), ("max", 64 * 1024)])
def test_the_group_s_limit_counts_when_it_is_lower(tmp_path: Path, limit: str, free: int) -> None:
    group = "sys/fs/cgroup/pod/job"
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/pod/job\n",
        f"{group}/memory.max": limit,
        f"{group}/memory.current": "30000",
        f"{group}/memory.stat": "anon 26000\ninactive_file 4000\n",
    }
    assert available_ram_bytes(machine(tmp_path, files)) == free


def test_the_limit_of_a_group_above_counts_too(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/pod/job\n",
        "sys/fs/cgroup/pod/job/memory.max": "60000",
        "sys/fs/cgroup/pod/job/memory.current": "1000",
        "sys/fs/cgroup/pod/memory.max": "20000",
        "sys/fs/cgroup/pod/memory.current": "15000",
    }
    assert available_ram_bytes(machine(tmp_path, files)) == 5000


def test_the_first_version_of_control_groups_is_read_too(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "5:cpuset:/other\n4:memory:/job\n0::/\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "40000",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "10000",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "50000",
    }
    assert available_ram_bytes(machine(tmp_path, files)) == 30000


def test_a_system_that_does_not_say_is_not_guessed_at(tmp_path: Path) -> None:
    assert available_ram_bytes(tmp_path) is None
