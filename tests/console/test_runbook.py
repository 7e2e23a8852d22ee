"""The runbook that the gateway itself gives."""

from __future__ import annotations

import re

from fastapi.testclient import TestClient

from failsoft.console.runbook import anchor, as_html
from failsoft.incidents.account import _BAD_INPUT, _OVERLOAD, _fall
from tests.conftest import ROOT
from tests.console.made import Scene

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text("utf-8")


def test_it_is_the_one_of_the_documents_with_all_its_sections_and_none_of_its_marks() -> None:
    page = TestClient(Scene(ROOT).app()).get("/console/runbook")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    headings = re.findall(r"^##? (.+)$", RUNBOOK, flags=re.MULTILINE)
    assert len(headings) > 20
    for heading in headings:
        assert f'id="{anchor(heading)}">{heading}</h' in page.text
    words = re.sub(r"<(pre|code)[^>]*>.*?</\1>", "", page.text, flags=re.DOTALL)
    assert not re.search(r"\*\*|```|\]\(|^#", words, flags=re.MULTILINE)


def test_every_link_in_it_leads_to_a_section_of_it() -> None:
    page = TestClient(Scene(ROOT).app()).get("/console/runbook").text
    anchors = set(re.findall(r'id="([^"]+)"', page))
    inside = set(re.findall(r'href="#([^"]+)"', page))
    assert inside
    assert inside <= anchors
    assert not re.search(r'(?:href|src)="(?:https?:|\.\./deploy)', page)


def test_it_says_of_each_button_of_the_console_which_command_that_is() -> None:
    page = TestClient(Scene(ROOT).app()).get("/console").text
    buttons = re.findall(r"<button [^>]*data-order[^>]*>([^<]+)</button>", page)
    text = " ".join(RUNBOOK.split())
    assert len(buttons) == 7
    for button in buttons:
        assert re.search(rf"“{re.escape(button)}” (is )?`failsoft [a-z ]+`", text), button


def test_what_an_incident_names_has_a_section() -> None:
    sections = {_OVERLOAD.section, _BAD_INPUT.section, _fall("so", "so").section}
    assert all(f"\n## {section}\n" in RUNBOOK for section in sections)


def test_marks_are_read_and_what_looks_like_html_is_text() -> None:
    made = "".join(
        as_html("# A & b\n\n**Means**: `a **b**` and *so* <i>, see [c](#c) and [d](../d.json).\n\n```\n1 < 2\n```")
    )
    assert made == (
        '<h1 id="a--b">A &amp; b</h1>'
        "<p><strong>Means</strong>: <code>a **b**</code> and <em>so</em> &lt;i&gt;, see "
        '<a href="#c">c</a> and d.</p><pre tabindex="0">1 &lt; 2</pre>'
    )
