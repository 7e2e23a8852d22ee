"""What ``failsoft dlq`` prints and refuses, on folders as runs leave them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from failsoft.cli import letters as _letters  # noqa: F401 -- hangs its commands on the app
from failsoft.cli.app import app
from failsoft.cli.letter_words import in_words
from failsoft.errors import FailsoftError
from failsoft.health.clock import ManualClock
from failsoft.training.letters.blame import Blame
from failsoft.training.letters.deadletters import DeadLetters
from failsoft.training.letters.diagnosis import Cause, Diagnosis, Evidence
from failsoft.training.letters.letter import DeadLetter, undone_letter
from failsoft.training.letters.replay import Replay
from failsoft.training.letters.requeue import read_requeue
from failsoft.training.loading.bad import BadKind, BadSample
from failsoft.training.loading.sample_letters import SampleLetters
from failsoft.training.progress import PROGRESS_NAME, Progress, ProgressFile


def bury(home: Path, run: str, *positions: int, at_s: float = 0.0) -> None:
    folder = home / "runs" / run
    letters = DeadLetters(folder / "dead_letters", rank=0)
    for position in positions:
        letters.write(
            DeadLetter(
                position=position,
                step=position,
                rank=0,
                reason="loss is not finite",
                sample_ids=(position, position + 100),
                sample_count=2,
                bad_tensor="head.weight",
                sources={"shard-7": 2},
            )
        )
    ProgressFile(folder, ManualClock(wall_s=at_s)).write(Progress())


def dlq(home: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, ["dlq", *arguments, "--home", str(home)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def refusal(home: Path, *arguments: str) -> str:
    with pytest.raises(FailsoftError) as caught:
        CliRunner().invoke(app, ["dlq", *arguments, "--home", str(home)], catch_exceptions=False)
    return str(caught.value)


def test_letters_are_listed_by_position_and_a_long_burst_is_one_line(tmp_path: Path) -> None:
    bury(tmp_path, "first", 3, 20, 21, 22, 23, 24)
    shown = dlq(tmp_path, "ls", "first")
    assert "20–24 (5" in shown
    assert "shard-7" in shown
    assert "next: failsoft dlq show first 3" in shown
    unfolded = dlq(tmp_path, "ls", "first", "--all")
    assert "20–24" not in unfolded
    assert "│ 22 " in unfolded


def test_without_a_run_the_newest_one_is_taken(tmp_path: Path) -> None:
    bury(tmp_path, "older", 3, at_s=10.0)
    bury(tmp_path, "newer", 4, at_s=20.0)
    bury(tmp_path, "a-older", 5, at_s=5.0)
    assert "dead letters of run newer" in dlq(tmp_path, "ls")
    assert "batch at position 4" in dlq(tmp_path, "show", "4")


def test_a_run_without_letters_is_good_news(tmp_path: Path) -> None:
    bury(tmp_path, "first")
    assert "every batch so far was trained on" in dlq(tmp_path, "ls")


def test_single_samples_that_were_left_out_are_listed_the_newest_first_to_be_kept(tmp_path: Path) -> None:
    bury(tmp_path, "first", 3)
    letters = SampleLetters(tmp_path / "runs" / "first" / "dead_letters", rank=1, clock=ManualClock(wall_s=5.0))
    for index in (70, 71, 72):
        letters.write(index, [BadSample(index=index, source="shard-7", kind=BadKind.CHECKSUM, why="\x1b[31mtorn")])
    shown = dlq(tmp_path, "ls", "first", "--samples", "2")
    assert "3 letters of single samples" in shown.replace("\n", " ")
    assert "71" in shown
    assert "72" in shown
    assert "\x1b[31mtorn" not in shown
    told = json.loads(dlq(tmp_path, "ls", "first", "--samples", "2", "--json"))
    assert [one["index"] for one in told["samples"]] == [71, 72]
    assert (told["samples"][0]["kind"], told["samples"][0]["source"], told["samples"][0]["rank"]) == (
        "checksum",
        "shard-7",
        1,
    )
    assert (told["samples_in_all"], len(told["letters"])) == (3, 1)
    assert json.loads(dlq(tmp_path, "ls", "first", "--samples", "0", "--json"))["samples"] == []


def test_single_samples_are_listed_without_loading_torch() -> None:
    code = "import sys, failsoft.training.loading.sample_letters; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_list_is_json_when_asked_for(tmp_path: Path) -> None:
    bury(tmp_path, "first", 3)
    (told,) = json.loads(dlq(tmp_path, "ls", "--json"))["letters"]
    assert (told["position"], told["sample_ids"], told["sources"]) == (3, [3, 103], {"shard-7": 2})
    assert "generators" not in told


def test_torn_lines_are_said(tmp_path: Path) -> None:
    bury(tmp_path, "first", 3)
    with (tmp_path / "runs/first/dead_letters/rank-0000.jsonl").open("ab") as out:
        out.write(b'{"posi\n')
    assert "1 torn lines were passed over" in dlq(tmp_path, "ls")


def test_all_that_is_known_of_a_batch_is_shown(tmp_path: Path) -> None:
    bury(tmp_path, "first", 3)
    undone = undone_letter(9, [1, 2], step=4, at_s=0.0, undone_at=12)
    DeadLetters(tmp_path / "runs/first/dead_letters", rank=0).write(undone)
    shown = dlq(tmp_path, "show", "first", "3")
    assert all(
        text in shown for text in ("head.weight", "loss is not finite", "103", "next: failsoft dlq replay first 3")
    )
    assert "undone at position" in dlq(tmp_path, "show", "9")


def test_an_export_is_whole_and_replaces_no_file_unasked(tmp_path: Path) -> None:
    bury(tmp_path, "first", 3, 5)
    out = tmp_path / "letters.jsonl"
    dlq(tmp_path, "export", "first", "--out", str(out))
    assert [json.loads(line)["position"] for line in out.read_text("utf-8").splitlines()] == [3, 5]
    out.write_text("mine", "utf-8")
    assert "--force" in refusal(tmp_path, "export", "first", "--out", str(out))
    assert out.read_text("utf-8") == "mine"
    dlq(tmp_path, "export", "first", "--out", str(out), "--force")
    assert len(out.read_text("utf-8").splitlines()) == 2


def test_batches_are_requeued_once_with_the_next_command_named(tmp_path: Path) -> None:
    bury(tmp_path, "first", 3, 5, 7)
    shown = dlq(tmp_path, "requeue", "first", "3", "5", "--why", "labels mended")
    assert "next: start run first again by its own script" in shown
    dlq(tmp_path, "requeue", "7", "--without", "107")
    entries = read_requeue(tmp_path / "runs/first")
    assert [(entry.position_of_letter, entry.sample_indices, entry.why) for entry in entries] == [
        (3, (3, 103), "labels mended"),
        (5, (5, 105), "labels mended"),
        (7, (7,), ""),
    ]
    assert "requeued as entry 0" in json.loads(dlq(tmp_path, "ls", "--json"))["letters"][0]["since_then"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ls", "nope"), "there: first. See: failsoft runs"),
        (("show", "4"), "no dead letter is of position 4; there are: 3, 5"),
        (("show", "first"), "give one position of run first"),
        (("show", "first", "3", "5"), "see: failsoft dlq ls first"),
        (("replay", "4"), "no dead letter is of position 4"),
        (("replay", "3"), "is no run of failsoft train"),
        (("requeue", "first", "4"), "there are: 3, 5"),
        (("requeue", "3", "5", "--without", "3"), "one by one"),
        (("requeue", "3", "--without", "some-name"), "failsoft dlq show first"),
        (("requeue", "3", "--without", "9"), "failsoft dlq show 3"),
    ],
)
def test_an_error_names_the_thing_and_the_next_command(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    bury(tmp_path, "first", 3, 5)
    assert said in refusal(tmp_path, *arguments)


def test_no_batch_goes_on_the_list_when_one_of_them_has_no_letter(tmp_path: Path) -> None:
    bury(tmp_path, "first", 3, 5)
    assert "no dead letter is of position 4" in refusal(tmp_path, "requeue", "3", "4", "5")
    assert read_requeue(tmp_path / "runs/first") == ()


def test_a_run_of_another_trainer_has_no_list_to_put_batches_on(tmp_path: Path) -> None:
    bury(tmp_path, "theirs", 3)
    (tmp_path / "runs/theirs" / PROGRESS_NAME).unlink()
    assert "does not read this list" in refusal(tmp_path, "requeue", "theirs", "3")
    assert read_requeue(tmp_path / "runs/theirs") == ()
    assert "head.weight" in dlq(tmp_path, "show", "theirs", "3")


def test_letters_that_are_all_torn_are_no_good_news(tmp_path: Path) -> None:
    bury(tmp_path, "first")
    (tmp_path / "runs/first/dead_letters").mkdir()
    (tmp_path / "runs/first/dead_letters/rank-0000.jsonl").write_bytes(b'{"posi')
    shown = dlq(tmp_path, "ls", "first")
    assert "every batch so far was trained on" not in shown
    assert "1 torn lines were passed over" in shown


def replayed(*blamed: int, cause: Cause = Cause.DATA, complete: bool = True) -> list[str]:
    letter = DeadLetter(position=3, step=3, rank=0, reason="loss is not finite", sample_ids=tuple(range(32)))
    found = Replay(
        position=3,
        letters=(letter,),
        diagnosis=Diagnosis(cause=cause, why="so"),
        evidence=Evidence(),
        trials=(),
        blamed=Blame(samples=blamed, complete=complete, why="" if complete else "out of memory"),
        reached="here",
    )
    return in_words("first", found)


def test_the_command_after_bad_data_leaves_out_each_sample_that_is_bad_alone() -> None:
    lines = replayed(*range(20))
    assert lines[-1].endswith("failsoft dlq requeue first 3" + "".join(f" --without {one}" for one in range(20)))
    assert any(line.endswith("15 and 4 more") for line in lines)


def test_a_batch_of_nothing_but_bad_samples_stays_dead() -> None:
    assert "leave it dead" in replayed(*range(32))[-1]


def test_a_batch_that_is_bad_only_as_a_whole_is_not_sent_back_as_it_is() -> None:
    last = replayed()[-1]
    assert "no sample is bad alone" in last
    assert "requeue" not in last


def test_samples_that_were_not_looked_at_are_said() -> None:
    assert "note: not every sample was looked at: out of memory" in replayed(4, complete=False)


def test_a_home_without_runs_says_how_to_begin(tmp_path: Path) -> None:
    assert "failsoft train" in refusal(tmp_path, "ls")


@pytest.mark.parametrize(
    "wrong",
    [
        {"at_s": "now"},
        {"at_s": math.nan},
        {"at_s": -1e12},
        {"index": "x"},
        {"index": -1},
        {"why": None},
        {"source": 7},
        {"rank": True},
        {"synthetic": 2},
        {"kind": "none of ours"},
    ],
)
def test_a_letter_of_a_sample_with_a_field_of_another_type_hides_no_other_one(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    folder = tmp_path / "runs" / "first" / "dead_letters"
    letters = SampleLetters(folder, rank=0, clock=ManualClock())
    letters.write(3, [BadSample(index=5, source="shard-7", kind=BadKind.CHECKSUM, why="torn")])
    whole = json.loads(letters.path.read_text("utf-8"))
    with letters.path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(whole | wrong) + "\n")
    assert "1 letters of single samples" in dlq(tmp_path, "ls")
