"""A drill as JUnit XML: each trial a test case. Lost fails, undecided is an error, what was not tried is skipped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from failsoft.drills.matrix import Matrix
from failsoft.drills.outcome import Outcome

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""XML 1.0 has no way to write these; a script's output may hold them."""


def to_junit(matrices: Sequence[Matrix]) -> str:
    """XML text, one suite for each subject. A reference that was not good is one failed case."""
    root = ElementTree.Element("testsuites", {"name": "failsoft drill"})
    for matrix in matrices:
        _add_suite(root, matrix)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_suite(root: ElementTree.Element, matrix: Matrix) -> None:
    quiet = 0 if matrix.reference.good else 1
    counts = {
        "tests": str(len(matrix.outcomes) + 1),
        "failures": str(matrix.count("lost") + quiet),
        "errors": str(matrix.count("undecided")),
        "skipped": str(matrix.count("not tried")),
        "time": f"{matrix.seconds:.3f}",
    }
    name = _plain(f"{matrix.side} {matrix.subject}")
    suite = ElementTree.SubElement(root, "testsuite", {"name": name, **counts})
    place = {"classname": name, "time": f"{matrix.reference.seconds:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", {"name": "without a fault", **place})
    if quiet:
        ElementTree.SubElement(case, "failure", {"type": "reference", "message": _plain(matrix.reference.why)})
    for outcome in matrix.outcomes:
        _add_case(suite, outcome, name)
    ElementTree.SubElement(suite, "system-out").text = _plain("\n".join([*matrix.notes, matrix.device]))


def _add_case(suite: ElementTree.Element, outcome: Outcome, place: str) -> None:
    name = " and ".join(str(fault) for fault in outcome.faults)
    attributes = {"name": _plain(name), "classname": place, "time": f"{outcome.seconds:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    element, kind = {
        "survived": ("system-out", ""),
        "lost": ("failure", "lost"),
        "undecided": ("error", "undecided"),
        "not tried": ("skipped", ""),
    }[outcome.word]
    attributes = {} if outcome.good else {"message": _plain(outcome.why)} | ({"type": kind} if kind else {})
    said = ElementTree.SubElement(case, element, attributes)
    said.text = _plain("\n".join([outcome.why, *outcome.seen, *([outcome.mend] if outcome.mend else [])]))


def _plain(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
