"""A gate report as JUnit XML: each gate a test case, so that any CI shows which one failed and why."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from failsoft.release.report import GateReport, GateResult

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""XML 1.0 has no way to write these; a caller's text may hold them."""


def to_junit(report: GateReport) -> str:
    """XML text. A waived gate is a skipped case; a report without any gate holds one failed case."""
    cases = report.results or (
        GateResult(name="any gate", passed=False, value=None, limit=None, why="nothing was measured"),
    )
    counts = {
        "tests": str(len(cases)),
        "failures": str(len([case for case in cases if not case.acceptable])),
        "skipped": str(len([case for case in cases if not case.passed and case.acceptable])),
        "errors": "0",
    }
    root = ElementTree.Element("testsuites", {"name": "failsoft gate", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": _plain(f"gates of release {report.release}"), **counts})
    for case in cases:
        _add(suite, case, report.release)
    if report.notes:
        ElementTree.SubElement(suite, "system-out").text = _plain("\n".join(report.notes))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add(suite: ElementTree.Element, case: GateResult, release: str) -> None:
    element = ElementTree.SubElement(suite, "testcase", name=case.name, classname=_plain(f"gates.{release}"), time="0")
    if case.passed:
        ElementTree.SubElement(element, "system-out").text = _plain(case.why)
    elif case.waived is not None:
        ElementTree.SubElement(element, "skipped", message=_plain(f"waived: {case.waived}; {case.why}"))
    else:
        failure = ElementTree.SubElement(element, "failure", type="gate", message=_plain(case.why))
        failure.text = f"value {case.value}, limit {case.limit}"


def _plain(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
