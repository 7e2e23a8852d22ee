"""What a gate report looks like to CI and to a reader: well-formed whatever a text holds, and self-contained."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.release.junit import to_junit
from failsoft.release.page import to_html
from failsoft.release.policy import GatePolicy
from failsoft.release.report import GateReport, GateResult

GOOD = GateResult(name="finite weights", passed=True, value=0.0, limit=0.0, why="0 of 21 tensors")
BAD = GateResult(name="golden inputs", passed=False, value=1.0, limit=0.0, why="first: '<b>hi</b>\x00' & more")
EXCUSED = GateResult(name="size", passed=False, value=9.0, limit=1.0, why="too large", waived="disks are large")
REPORT = GateReport(release="r-<1>", results=(GOOD, BAD, EXCUSED), against="r-0", notes=("a note",))


def test_each_gate_is_a_test_case_and_only_what_must_not_pass_is_a_failure() -> None:
    root = ElementTree.fromstring(to_junit(REPORT))  # noqa: S314 -- our own text
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases == {"finite weights": ["system-out"], "golden inputs": ["failure"], "size": ["skipped"]}


def test_a_report_without_any_gate_is_a_failure_and_not_an_empty_success() -> None:
    root = ElementTree.fromstring(to_junit(GateReport(release="r", results=())))  # noqa: S314 -- our own text
    assert root.get("failures") == "1"


@given(st.text())
def test_whatever_a_caller_wrote_the_xml_is_well_formed_and_the_page_holds_no_markup_of_it(text: str) -> None:
    why = GateResult(name="golden inputs", passed=False, value=None, limit=None, why=text)
    report = GateReport(release="r", results=(why,), notes=(text,))
    ElementTree.fromstring(to_junit(report))  # noqa: S314 -- our own text
    assert to_html(report).count("<script") == 0


def test_the_page_asks_nothing_of_any_network_and_says_first_what_failed() -> None:
    page = to_html(REPORT)
    assert not re.search(r"https?://|src=|@import|url\(|<script|<link|<iframe", page)
    assert "default-src 'none'" in page
    assert "It must not be served." in page
    assert page.index("golden inputs") < page.index("finite weights")
    assert "&lt;b&gt;hi" in page
    assert "disks are large" in page


@pytest.mark.parametrize(("results", "verdict"), [((GOOD, EXCUSED), "may be served"), ((), "must not be served")])
def test_the_page_s_verdict_is_the_report_s(results: tuple[GateResult, ...], verdict: str) -> None:
    assert verdict in to_html(GateReport(release="r", results=results))


def test_what_it_was_judged_by_is_in_words_and_rounding_is_none() -> None:
    facts = {"limits": asdict(GatePolicy()), "waivers": [{"gate": "size", "reason": "large <disks>"}]}
    tiny = replace(GOOD, value=-1.3e-8)
    page = to_html(GateReport(release="r", results=(tiny,), facts=facts))
    assert "bf16; fp16; int8" in page
    assert "rounds 1000, confidence 0.95, seed 7" in page
    assert "gate size, reason large &lt;disks&gt;" in page
    assert "≈ 0" in page
    assert "Width" not in page


def test_the_page_reads_in_the_dark_and_its_markup_is_whole() -> None:
    page = to_html(REPORT)
    assert "prefers-color-scheme: dark" in page
    body = re.sub(r"<meta[^>]*>|<br>|<!doctype html>", "", page)
    ElementTree.fromstring(body)  # noqa: S314 -- our own text
