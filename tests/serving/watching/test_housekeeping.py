"""Texts go first, then what went wrong, then the counts; and no page shows a text that is gone."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import read_ledger
from failsoft.health.ledger_files import append_line, put_away
from failsoft.health.line_removal import Removed, remove_lines
from failsoft.health.retention import DAY_S, Cut
from failsoft.incidents.answers import read_spans
from failsoft.serving.watching import housekeeping
from failsoft.serving.watching.answer_removal import judge_spans
from failsoft.serving.watching.housekeeping import Housekeeping
from failsoft.serving.watching.specimens import caller_mark, request_mark

pytestmark = pytest.mark.anyio
NOW_S = 1000 * DAY_S
EVER = float("inf")


def specimen(text: str, request: str = "q1", caller: int = 7) -> dict[str, str]:
    marks = {"request": request_mark(request), "caller": caller_mark(caller)}
    return {"why": "weak", "said": "so", "shape": "xxxx", "text": text, "trace_id": "4bf9"} | marks


def write(home: Path, age_days: float, *specimens: dict[str, str]) -> None:
    span = {"v": 1, "at_s": NOW_S - age_days * DAY_S, "span_s": 5.0, "gateway": "g", "epoch": 1, "stage": "serving"}
    span |= {"answers": {"rules": {"weak": len(specimens)}}, "confidence": [0] * 10, "slowest_ms": 1.0}
    line = json.dumps(span | {"release": "r", "specimens": specimens}, separators=(",", ":"))
    append_line(home / "serving" / "answers.jsonl", line.encode() + b"\n")


def kept(home: Path) -> list[list[set[str]]]:
    """Of each span, oldest first, the fields of each specimen."""
    spans = read_spans(home / "serving" / "answers.jsonl", after_s=0.0, before_s=EVER)
    return [[set(one) for one in span.specimens] for span in spans]


def test_each_part_goes_at_its_own_age(tmp_path: Path) -> None:
    for age in (401.5, 100, 40, 3):
        write(tmp_path, age, specimen("tell anna"))
    removed = Housekeeping(Home(root=tmp_path), ManualClock(wall_s=NOW_S)).tidy()
    shape = {"why", "said", "shape"}
    assert kept(tmp_path) == [[], [shape], [shape | {"text", "trace_id", "request", "caller"}]]
    assert removed.lines == 3
    (told,) = read_ledger(tmp_path / "ledger.jsonl").events
    assert (told.kind, dict(told.data)) == ("past_its_time", {"spans": 3, "events": 0})
    assert Housekeeping(Home(root=tmp_path), ManualClock(wall_s=NOW_S)).tidy() == Removed()


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("mark", [request_mark("q2"), caller_mark(9)])
def test_what_one_person_wrote_goes_alone_and_at_any_age(tmp_path: Path, mark: str, whole: bool) -> None:
    write(tmp_path, 1, specimen("stays"), specimen("goes", request="q2", caller=9))
    gone: list[str] = []
    path = tmp_path / "serving" / "answers.jsonl"
    assert remove_lines(path, judge_spans(Cut(marks=frozenset({mark})), whole=whole, gone=gone.append)).lines == 1
    assert (gone, "goes" in path.read_text(), "stays" in path.read_text()) == (["goes"], False, True)
    assert len(kept(tmp_path)[0]) == (1 if whole else 2)


def test_a_page_that_shows_a_text_goes_with_it_and_an_old_page_by_its_age(tmp_path: Path) -> None:
    write(tmp_path, 35, specimen('tell <anna> "now"\u200b'))
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "incident-1.html").write_text("<td>tell &lt;anna&gt; &quot;now&quot;\\u200b</td>")
    (reports / "incident-2.html").write_text("<td>xxxx</td>")
    (reports / "incident-0.png").write_bytes(b"old")
    os.utime(reports / "incident-2.html", (NOW_S, NOW_S))
    os.utime(reports / "incident-0.png", (NOW_S - 401 * DAY_S, NOW_S - 401 * DAY_S))
    Housekeeping(Home(root=tmp_path), ManualClock(wall_s=NOW_S)).tidy()
    assert [page.name for page in reports.iterdir()] == ["incident-2.html"]


def test_a_page_goes_with_its_text_also_where_that_goes_with_a_whole_file(tmp_path: Path) -> None:
    for text in ("tell anna", "tell bob"):
        write(tmp_path, 1, specimen(text))
        put_away(tmp_path / "serving" / "answers.jsonl", full_bytes=1)
    (tmp_path / "reports").mkdir()
    for name in ("anna", "bob"):
        (tmp_path / "reports" / f"{name}.html").write_text(f"<td>tell {name}</td>")
    (tmp_path / "retention.toml").write_text("answers_mb = 0.0005")
    assert Housekeeping(Home(root=tmp_path), ManualClock(wall_s=NOW_S)).tidy().files == 2
    assert [page.name for page in (tmp_path / "reports").iterdir()] == ["bob.html"]


def test_a_disk_that_refuses_leaves_no_page_whose_text_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 35, specimen("tell anna"))
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "anna.html").write_text("<td>tell anna</td>")
    keeper = Housekeeping(Home(root=tmp_path), ManualClock(wall_s=NOW_S))
    with monkeypatch.context() as broken:
        broken.setattr(housekeeping, "remove_pages", refuses)
        with pytest.raises(OSError, match="no more"):
            keeper.tidy()
    keeper.tidy()
    assert not any(b"anna" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def refuses(*_: object) -> int:
    raise OSError(errno.EIO, "no more")


def test_a_span_without_requests_that_went_wrong_is_no_matter_of_persons(tmp_path: Path) -> None:
    line = b'{"v":1,"at_s":5.0,"answers":{}}'
    assert judge_spans(Cut(marks=frozenset({request_mark("q")})))(line) == line


async def test_settings_that_cannot_be_meant_remove_nothing_and_end_no_duty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(housekeeping, "EVERY_S", 0.0)
    write(tmp_path, 500, specimen("old"))
    (tmp_path / "retention.toml").write_text("texts_days = -1")
    duty = asyncio.create_task(Housekeeping(Home(root=tmp_path), ManualClock(wall_s=NOW_S)).run())
    async with asyncio.timeout(30.0):
        while "texts_days is -1" not in caplog.text:  # noqa: ASYNC110 -- a log tells nobody
            await asyncio.sleep(0.001)
        assert kept(tmp_path) == [[{"why", "said", "shape", "text", "trace_id", "request", "caller"}]]
        (tmp_path / "retention.toml").unlink()
        while kept(tmp_path):  # noqa: ASYNC110 -- the disk tells nobody
            await asyncio.sleep(0.001)
    assert not duty.done()
    duty.cancel()
