"""After a purge no byte of what was removed is anywhere below the home, and all that is in use is as it was."""

from __future__ import annotations

import errno
import json
import math
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from failsoft.artifacts.home import Home
from failsoft.cli import purge as _purge  # noqa: F401 -- hangs its command on the app
from failsoft.cli.app import app
from failsoft.errors import ConfigError
from failsoft.health.callers import caller_in_words, caller_of
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.ledger import Ledger, Side, read_ledger
from failsoft.health.ledger_files import append_line, put_away
from failsoft.purging import purge as purging
from failsoft.purging.order import What, of_persons, older_than
from failsoft.purging.purge import Purge
from failsoft.serving.intents import INTENTS
from failsoft.serving.watching.specimens import SpecimenPolicy, Whose, caller_mark
from failsoft.serving.web.routes import build_routes
from failsoft.serving.web.wire import wire_of
from failsoft.training.checkpoints.driver_lock import sole_driver
from failsoft.training.letters.deadletters import DeadLetters
from failsoft.training.letters.letter import DeadLetter
from tests.serving.web.test_routes import FakeFront, guard

SECRET, OTHER = "tell anna about the clinic in Bergen", "play some jazz in the kitchen"
ANNA = "anna@example.org"
DAY_S = 86_400.0
NOW_S = SystemClock().wall_s()


def write_span(home: Path, at_s: float, *specimens: dict[str, str]) -> None:
    body = {"v": 1, "at_s": at_s, "span_s": 5.0, "gateway": "g", "epoch": 1, "stage": "serving", "release": "r"}
    body |= {"answers": {"rules": {"weak": 2}}, "confidence": [0] * 10, "slowest_ms": 1.0}
    line = json.dumps(body | {"specimens": list(specimens)}, separators=(",", ":"))
    append_line(home / "serving" / "answers.jsonl", line.encode() + b"\n")


def specimen(text: str, request: str, caller: str) -> dict[str, str]:
    return {"why": "weak", "said": "so", "shape": "xx", "text": text} | Whose(request, caller_of(caller)).marks()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two texts in a full file and in the one that is written, a page that shows one, events, letters, a checkpoint."""
    for _ in range(2):
        write_span(tmp_path, NOW_S - 40 * DAY_S, specimen(SECRET, "q1", ANNA), specimen(OTHER, "q2", "bob"))
        put_away(tmp_path / "serving" / "answers.jsonl", full_bytes=1)
    write_span(tmp_path, NOW_S - DAY_S, specimen(SECRET, "q3", ANNA), specimen(OTHER, "q4", "bob"))
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "incident-3.html").write_text(f"<td>{SECRET}</td>")
    (tmp_path / "reports" / "incident-4.html").write_text("<td>xx</td>")
    ledger = Ledger(tmp_path / "ledger.jsonl", ManualClock(wall_s=NOW_S - 50 * DAY_S), side=Side.SERVING, subject="g")
    ledger.record("caller_apart", f"caller {caller_in_words(caller_of(ANNA))} alone has gone bad")
    ledger.record("trip", "12 bad of 40")
    letters = DeadLetters(tmp_path / "runs" / "first" / "dead_letters", rank=0)
    letter = {"step": 0, "rank": 0, "reason": "loss is not finite", "sample_ids": (1,), "at_s": NOW_S - 60 * DAY_S}
    letters.write(DeadLetter(position=1, **letter))  # type: ignore[arg-type]
    for kept in ("runs/first/checkpoints/c-1/weights", "releases/r-1/weights", "serving/plan-a.json"):
        (tmp_path / kept).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / kept).write_text("in use")
    return tmp_path


def everything(home: Path) -> bytes:
    found = [path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()]
    return b"\n".join(filter(None, found))  # a lock is an empty file


def purge(home: Path, *arguments: str, status: int = 0) -> dict[str, object]:
    done = CliRunner().invoke(app, ["purge", *arguments, "--json", "--home", str(home)], catch_exceptions=False)
    assert done.exit_code == status, done.output
    return dict(json.loads(done.output))


@pytest.mark.parametrize(
    "who", [("--caller", ANNA), ("--request-id", "q1", "--request-id", "q3"), ("--caller", ANNA, "--what", "texts")]
)
def test_of_what_a_person_asks_to_have_removed_no_byte_is_left(home: Path, who: tuple[str, ...]) -> None:
    assert SECRET.encode() in everything(home)
    told = purge(home, *who, "--yes")
    left = everything(home)
    assert told["still_in"] == []
    assert (SECRET.encode() in left, OTHER.encode() in left) == (False, True)
    assert not (home / "reports" / "incident-3.html").exists()
    assert (home / "reports" / "incident-4.html").exists()
    assert ANNA.encode() not in left
    assert left.count(b"in use") == 3


def test_a_caller_is_gone_from_the_ledger_too_and_the_purge_itself_is_an_event_that_names_nobody(home: Path) -> None:
    purge(home, "--caller", ANNA, "--yes", "--why", "asked for by mail")
    events = read_ledger(home / "ledger.jsonl").events
    assert [event.kind for event in events] == ["trip", "purged"]
    assert (events[-1].why, events[-1].data["removed"]["events"]) == ("asked for by mail", 1)
    number = f"{caller_of(ANNA):016x}"
    assert number[:8].encode() not in everything(home)


def test_without_yes_it_is_only_counted(home: Path) -> None:
    before = everything(home)
    told = purge(home, "--older-than", "30d")
    assert (told["dry_run"], everything(home)) == (True, before)
    again = purge(home, "--older-than", "30d", "--dry-run", "--yes")
    assert again == told
    assert purge(home, "--older-than", "30d", "--yes")["removed"] == told["removed"]


def test_by_age_each_kind_goes_alone(home: Path) -> None:
    assert purge(home, "--older-than", "30d", "--what", "ledger", "--yes")["removed"] == {
        **dict.fromkeys(("spans", "texts", "pages", "whole_files", "letters", "payloads", "stacks"), 0),
        "events": 2,
        "runs_in_use": [],
    }
    texts = purge(home, "--older-than", "30d", "--what", "texts", "--yes")["removed"]
    assert isinstance(texts, dict)
    assert (texts["spans"], texts["texts"], texts["pages"]) == (2, 2, 1)
    assert SECRET.encode() in everything(home), "of yesterday"
    purge(home, "--older-than", "1h", "--yes")
    assert not any(word in everything(home) for word in (SECRET.encode(), OTHER.encode(), b"not finite"))


def test_without_any_option_what_the_home_s_settings_say_is_too_old_goes(home: Path) -> None:
    (home / "retention.toml").write_text("texts_days = 30\nledger_days = 45")
    removed = purge(home, "--yes")["removed"]
    assert isinstance(removed, dict)
    assert (removed["texts"], removed["events"], removed["letters"]) == (2, 2, 0)


def test_a_run_that_is_driven_keeps_its_letters_and_is_named(home: Path) -> None:
    with sole_driver(home / "runs" / "first"):
        told = purge(home, "--older-than", "30d", "--what", "letters", "--yes")
        assert isinstance(told["removed"], dict)
        assert (told["removed"]["letters"], told["removed"]["runs_in_use"]) == (0, ["first"])
        assert b"not finite" in everything(home)
    assert b"not finite" in everything(home)
    purge(home, "--older-than", "30d", "--what", "letters", "--yes")
    assert b"not finite" not in everything(home)


@pytest.mark.parametrize("name", ["notes/copy.txt", "replayed.json", "notes/run.log", "reports/copy.html-0a1b2c3d"])
def test_a_copy_that_somebody_made_is_found_and_named(home: Path, name: str) -> None:
    copy = home / name
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(f"as I said: {SECRET}")
    if name.startswith("reports"):  # left by a kill in mid-write
        purge(home, "--caller", ANNA, "--yes")
        assert not copy.exists()
        return
    assert purge(home, "--caller", ANNA, "--yes", status=2)["still_in"] == [str(copy)]


def die_at_the_second_rename(home: Path) -> None:
    real, renames = Path.replace, list[Path]()

    def replace(path: Path, target: Path) -> Path:
        renames.append(path)
        if len(renames) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(path, target)

    Path.replace = replace  # type: ignore[assignment,method-assign]
    order = of_persons([], request_ids=[], callers=[ANNA])
    Purge(home=Home(root=home), order=order, clock=ManualClock(wall_s=NOW_S)).carry_out()


def test_a_kill_in_the_midst_leaves_whole_files_and_the_same_order_goes_on(home: Path) -> None:
    victim = multiprocessing.get_context("spawn").Process(target=die_at_the_second_rename, args=(home,))
    victim.start()
    victim.join(60.0)
    assert victim.exitcode == -signal.SIGKILL
    assert SECRET.encode() in everything(home)
    for path in (home / "serving").glob("answers*.jsonl"):
        assert all(json.loads(line) for line in path.read_bytes().splitlines() if line.strip())
    purge(home, "--caller", ANNA, "--yes")
    left = everything(home)
    assert (SECRET.encode() in left, left.count(OTHER.encode())) == (False, 3)


@pytest.mark.parametrize("part", ["remove_pages", "remove_lines"])
def test_a_disk_that_refuses_in_the_midst_leaves_no_page_whose_text_nobody_knows_any_more(
    home: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **named: object) -> Any:
        if named.get("dry_run"):
            return real(*_, **named)
        raise OSError(errno.EIO, "no more")

    real = getattr(purging, part)
    order = of_persons([], request_ids=[], callers=[ANNA])
    task = Purge(home=Home(root=home), order=order, clock=ManualClock(wall_s=NOW_S))
    with monkeypatch.context() as broken:
        broken.setattr(purging, part, refuses)
        with pytest.raises(OSError, match="no more"):
            task.carry_out()
    purge(home, "--caller", ANNA, "--yes")
    assert SECRET.encode() not in everything(home)


@pytest.mark.anyio
@pytest.mark.parametrize("key", ["Bjørn", "安娜", ANNA])
async def test_a_caller_is_found_by_name_in_whatever_letters_and_whether_header_or_body_named_it(key: str) -> None:
    front = FakeFront()
    app = build_routes(front, guard, wire=wire_of(INTENTS), max_requests=64)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://gateway") as http:
        await http.post("/v1/predict", json={"text": "play", "caller": key})
        await http.post("/v1/predict", json={"text": "play"}, headers={b"X-Caller-Id": key.encode()})
    named = [asked.caller for asked in front.asked]
    assert (len(named), None in named) == (2, False)
    wanted = of_persons([], request_ids=[], callers=[key]).cut.marks
    assert {caller_mark(caller_of(str(caller))) for caller in named} <= wanted


def test_what_is_kept_of_nobody_cannot_be_removed_by_person() -> None:
    with pytest.raises(ConfigError, match="failsoft purge --what letters --older-than"):
        of_persons([What.LETTERS], request_ids=["q"], callers=[])
    with pytest.raises(ConfigError, match="--request-id or --caller"):
        of_persons([], request_ids=[], callers=[])


def test_two_questions_at_a_time_are_refused_and_an_empty_home_is_no_trouble(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one of them at a time"):
        purge(tmp_path, "--older-than", "3d", "--caller", "x")
    purge(tmp_path / "none", "--caller", "x")
    assert not (tmp_path / "none").exists()
    assert older_than([What.TEXTS], 5.0).cut.answers_s == -math.inf


def test_unless_switched_on_no_text_is_kept_at_all() -> None:
    assert not SpecimenPolicy().keep_texts
