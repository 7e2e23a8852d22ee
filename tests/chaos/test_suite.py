from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from failsoft.drills.fault import DrillFault, Phase, PlannedFault
from failsoft.drills.junit import to_junit
from failsoft.drills.matrix import Matrix, to_text
from failsoft.drills.outcome import Outcome
from failsoft.drills.page import to_html
from failsoft.drills.plan import alone, chosen, combinations, widest_first
from failsoft.drills.suite import Suite, SuitePlan
from failsoft.drills.table import print_matrix
from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from tests.chaos.fakes import PlantedBugs

NAN, HANG, SIGTERM, DRAIN = DrillFault.NAN, DrillFault.HANG, DrillFault.SIGTERM, DrillFault.DRAIN


def drilled(subject: PlantedBugs, folder: Path, *, together: int = 6) -> Matrix:
    plan = SuitePlan(kinds=subject.kinds, combinations=together)
    return Suite(subject, folder, ManualClock()).run(plan, device="no GPU here: nothing of this ran on one")


def test_each_fault_is_tried_in_each_of_its_phases_and_then_some_together(tmp_path: Path) -> None:
    subject = PlantedBugs()
    matrix = drilled(subject, tmp_path)
    assert [(one.faults[0].kind, one.faults[0].phase) for one in matrix.alone] == [
        (kind, phase) for kind in subject.kinds for phase in subject.phases(kind)
    ]
    assert len(matrix.together) == 6
    assert matrix.passed
    assert subject.closed == 1


def test_the_same_seed_draws_the_same_and_another_one_draws_others() -> None:
    subject = PlantedBugs()
    able = {(kind, phase) for kind in subject.kinds for phase in subject.phases(kind)}
    first, again, other = (combinations(subject, subject.kinds, seed=seed, count=8, able=able) for seed in (1, 1, 2))
    assert first == again != other
    assert all(2 <= len({fault.kind for fault in one}) == len(one) <= 3 for one in first)
    assert combinations(subject, (NAN,), seed=1, count=8, able=able) == []


def test_a_bug_that_only_a_pair_meets_is_found_and_made_smaller(tmp_path: Path) -> None:
    matrix = drilled(PlantedBugs(bugs=(frozenset({HANG, SIGTERM}),)), tmp_path, together=30)
    assert all(outcome.good for outcome in matrix.alone)
    assert not matrix.passed
    assert matrix.shrunk
    assert all({fault.kind for fault in one.smallest} == {HANG, SIGTERM} for one in matrix.shrunk)


def test_what_did_not_survive_alone_is_not_tried_together(tmp_path: Path) -> None:
    subject = PlantedBugs(bugs=(frozenset({HANG}),))
    matrix = drilled(subject, tmp_path)
    assert matrix.count("lost") == 2
    assert all(HANG not in {fault.kind for fault in one.faults} for one in matrix.together)
    assert not matrix.passed


def test_a_phase_that_the_subject_has_not_is_not_tried_and_counts_for_nothing(tmp_path: Path) -> None:
    subject = PlantedBugs(without=frozenset({Phase.START}))
    matrix = drilled(subject, tmp_path)
    assert matrix.passed
    assert matrix.count("not tried") == 3
    assert all(fault.phase is not Phase.START for faults in subject.tried for fault in faults)
    nothing = PlantedBugs(without=frozenset(Phase))
    assert not drilled(nothing, tmp_path / "nothing").passed


def test_a_drill_that_fails_itself_is_undecided_and_the_others_go_on(tmp_path: Path) -> None:
    matrix = drilled(PlantedBugs(breaks_the_drill=frozenset({NAN})), tmp_path)
    assert [one.word for one in matrix.alone].count("undecided") == 1
    assert matrix.count("survived") >= 6
    assert not matrix.passed


def test_each_kind_has_its_turn_before_any_has_another_and_the_table_keeps_its_order(tmp_path: Path) -> None:
    subject = PlantedBugs()
    trials = alone(subject, subject.kinds)
    first, later = widest_first(trials)[:4], widest_first(trials)[4:]
    assert [(trial[0].kind, trial[0].phase) for trial in first] == [(kind, Phase.TRAINING) for kind in subject.kinds]
    assert [trial[0].kind for trial in later] == [HANG, SIGTERM, DRAIN]
    plan = SuitePlan(kinds=subject.kinds, combinations=0, within_s=1000.0)
    matrix = Suite(subject, tmp_path, ManualClock()).run(plan, device="")
    assert [one.faults for one in matrix.alone] == trials
    assert subject.tried == first + later
    unhurried = PlantedBugs()
    drilled(unhurried, tmp_path / "unhurried", together=0)
    assert unhurried.tried == trials, "what takes all of an app down stays last"


def test_what_there_is_no_time_for_is_not_tried_and_said(tmp_path: Path) -> None:
    clock = ManualClock()
    subject = PlantedBugs(clock=clock)
    plan = SuitePlan(kinds=subject.kinds, combinations=2, within_s=1.6)
    matrix = Suite(subject, tmp_path, clock).run(plan, device="")
    assert {(one.faults[0].kind, one.faults[0].phase) for one in matrix.alone if one.good} == {
        (kind, Phase.TRAINING) for kind in (NAN, HANG, SIGTERM)
    }
    assert matrix.count("not tried") == 4 + 2
    assert {one.word for one in matrix.together} == {"not tried"}
    assert all("--within" in one.why for one in matrix.outcomes if one.skipped)
    assert clock.monotonic_s() <= 1.6 + ManualClock().monotonic_s()
    with pytest.raises(ConfigError, match="within_s"):
        replace(plan, within_s=0.0)


def test_a_subject_that_is_not_well_without_a_fault_is_not_drilled(tmp_path: Path) -> None:
    subject = PlantedBugs(well=False)
    matrix = drilled(subject, tmp_path)
    assert subject.tried == []
    assert not matrix.passed
    assert "Nothing was tried" in matrix.headline()
    assert subject.closed == 1


def test_names_of_faults_are_checked_against_the_subject() -> None:
    assert chosen(PlantedBugs(), ["hang", "nan"]) == (HANG, NAN)
    assert chosen(PlantedBugs(), []) == PlantedBugs().kinds
    with pytest.raises(ConfigError, match="--fault oom"):
        chosen(PlantedBugs(), ["oom"])
    with pytest.raises(ConfigError, match="without faults"):
        SuitePlan(kinds=())
    assert len(alone(PlantedBugs(), (NAN,))) == 1


NASTY = Outcome(
    faults=(PlannedFault(kind=NAN, phase=Phase.TRAINING),),
    survived=False,
    seconds=1.25,
    why="<script>alert(1)</script> [bold]not markup[/bold] \x00",
    lost=3,
    seen=("exit & <b>7</b>",),
    mend="guard the step",
)


@pytest.fixture
def matrix(tmp_path: Path) -> Matrix:
    made = drilled(
        PlantedBugs(without=frozenset({Phase.START}), bugs=(frozenset({HANG, DRAIN}),)), tmp_path, together=9
    )
    undecided = replace(NASTY, survived=None, lost=0)
    return replace(made, outcomes=(NASTY, undecided, *made.outcomes))


def test_json_holds_every_outcome_and_counts_them_as_the_headline_does(matrix: Matrix) -> None:
    read = json.loads(to_text([matrix]))["drills"][0]
    assert len(read["outcomes"]) == len(matrix.outcomes)
    assert sum(read["counts"].values()) == len(matrix.outcomes)
    assert [PlannedFault.from_json(fault) for fault in read["outcomes"][0]["faults"]] == list(NASTY.faults)
    assert not read["passed"]
    assert len(read["shrunk"]) == len(matrix.shrunk) > 0


def test_the_page_runs_nothing_loads_nothing_and_shows_every_word(matrix: Matrix) -> None:
    page = to_html([matrix])
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"(?:src|href)=", page)
    for word in ("survived", "lost", "undecided", "not tried", "nothing of this ran on one", "guard the step"):
        assert word in page


def test_junit_counts_lost_as_failure_undecided_as_error_and_not_tried_as_skipped(matrix: Matrix) -> None:
    suite = ElementTree.fromstring(to_junit([matrix]))[0]  # noqa: S314 -- our own text
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure")) == matrix.count("lost")
    assert int(suite.attrib["errors"]) == len(suite.findall("testcase/error")) == matrix.count("undecided")
    assert int(suite.attrib["skipped"]) == len(suite.findall("testcase/skipped")) == matrix.count("not tried")
    assert int(suite.attrib["tests"]) == len(suite.findall("testcase")) == len(matrix.outcomes) + 1


def test_the_table_shows_foreign_words_as_they_are_and_says_what_to_do(matrix: Matrix) -> None:
    console = Console(width=200, record=True)
    print_matrix(matrix, console)
    text = console.export_text()
    assert "[bold]not markup[/bold]" in text
    assert "nan: guard the step" in text
    assert "nothing of this ran on one" in text
