"""The page and the picture of an incident."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.demo.picture import Mark, draw_incident
from failsoft.demo.report import Table, write_report
from tests.demo.test_answers import seen


def test_an_incident_becomes_a_picture_and_one_page_without_any_outside_request(tmp_path: Path) -> None:
    answers = [seen(n / 10) for n in range(30)]
    answers += [seen(3 + n / 10, stage="degraded", epoch=2, source="gbdt", confidence=0.5) for n in range(30)]
    picture = tmp_path / "incident.png"
    draw_incident(answers, [Mark(at_s=3.0, text="weights broken")], picture)
    table = Table(title="Numbers", columns=("what", "value"), rows=(("<b>lost</b>", "0"),))
    write_report(tmp_path / "report.html", title="Drill", lead="What happened", picture=picture, tables=[table])
    page = (tmp_path / "report.html").read_text("utf-8")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "&lt;b&gt;lost&lt;/b&gt;" in page
    assert "http" not in page.replace("data:image", "")
    assert "<script" not in page


def test_no_answers_give_no_picture(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no answers"):
        draw_incident([], [], tmp_path / "incident.png")
