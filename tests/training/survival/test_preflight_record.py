"""Which nodes a run keeps away from, and until when."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.training.survival.preflight import NodeReport, failed, passed
from failsoft.training.survival.preflight_record import (
    RECORD_NAME,
    Record,
    Standing,
    read_record,
    write_record,
)

NODES = ("a1", "b2")
_ENTRY = '{"host": "h", "standing": "excluded", "why": "", "times_excluded": 1, "passes": 0, "counters": {}}'
_ODD = (
    f'{{"nodes": {{"": {_ENTRY}}}}}',  # ids that no selector of Ray can name
    f'{{"nodes": {{"a1,b2": {_ENTRY}}}}}',
    f'{{"nodes": {{"a1": {_ENTRY.replace("0", "Infinity")}}}}}',
    f'{{"nodes": {{"a1": {_ENTRY.replace("0", "-1")}}}}}',
)


def look(record: Record, *bad: str, nodes: tuple[str, ...] = NODES) -> tuple[Record, dict[str, Standing]]:
    reports = [
        NodeReport(
            node=node,
            host=f"host-{node}",
            findings=(failed("matmul", "core 3") if node in bad else passed("matmul", counters={"link": 4}),),
        )
        for node in nodes
    ]
    record, changes = record.after(reports, passes_to_return=2)
    return record, {change.node: change.move.after for change in changes}


def test_one_failed_preflight_excludes_a_node_with_its_reason_and_nobody_else() -> None:
    record, moves = look(Record(), "a1")
    assert record.excluded == {"a1"}
    assert record.of("a1").why == "matmul: core 3"
    assert moves == {"a1": Standing.EXCLUDED}


def test_it_comes_back_after_two_passes_in_a_row() -> None:
    record, _ = look(Record(), "a1")
    record, moves = look(record)
    assert record.excluded == {"a1"}
    assert moves == {"a1": Standing.RETURNING}
    record, moves = look(record)
    assert record.excluded == frozenset()
    assert moves == {"a1": Standing.FIT}


def test_a_failure_between_two_passes_begins_the_count_anew() -> None:
    record, _ = look(Record(), "a1")
    record, _ = look(record)
    record, moves = look(record, "a1")
    assert moves == {"a1": Standing.EXCLUDED}
    record, _ = look(record)
    assert record.excluded == {"a1"}
    record, _ = look(record)
    assert record.excluded == frozenset()


def test_a_node_that_stays_bad_is_no_news_the_second_time() -> None:
    record, _ = look(Record(), "a1")
    record, moves = look(record, "a1")
    assert moves == {}
    assert record.of("a1").times_excluded == 1


def test_a_lost_node_is_forgotten_unless_it_was_excluded() -> None:
    record, _ = look(Record(), "a1")
    record, _ = look(record, nodes=())
    assert set(record.nodes) == {"a1"}
    assert record.excluded == {"a1"}


def test_of_nodes_that_went_unfit_the_latest_are_remembered_and_one_that_is_here_always() -> None:
    record, _ = look(Record(), "a1", nodes=("a1",))
    for number in range(400):
        record, _ = look(record, "a1", f"n{number}", nodes=("a1", f"n{number}"))
    assert {"a1", "n399", "n150"} <= record.excluded
    assert len(record.excluded) <= 260


def test_another_driver_knows_what_the_first_one_found(tmp_path: Path) -> None:
    record, _ = look(Record(), "a1")
    write_record(tmp_path / "run", record)
    assert read_record(tmp_path / "run") == record
    assert [path.name for path in (tmp_path / "run").iterdir()] == [RECORD_NAME]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"nodes": 3}', '{"nodes": {"a1": 7, "b2": {"host": "h", "standing": "ill"}}}', *_ODD]
)
def test_a_record_that_can_not_be_read_means_that_nothing_is_known(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORD_NAME).write_text(text, "utf-8")
    assert read_record(tmp_path) == Record()


def test_counters_are_kept_for_the_next_look() -> None:
    record, _ = look(Record())
    assert record.of("a1").counters == {"link": 4}
