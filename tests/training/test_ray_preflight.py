"""Which nodes meet: those that can come. Without Ray; ``tests/drills/test_preflight.py`` looks at real nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from failsoft.training import ray_preflight
from failsoft.training.ray_meetings import Meetings
from failsoft.training.ray_preflight import look_at_nodes
from failsoft.training.ray_settings import RaySettings
from failsoft.training.survival.preflight import Finding, NodeReport, PreflightPolicy, passed
from failsoft.training.survival.room import NodeRoom


def node(name: str, free_gpus: float) -> NodeRoom:
    here = {"CPU": 8.0, "GPU": 2.0}
    return NodeRoom(node=name, name=name, free=here | {"GPU": free_gpus}, total=here)


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the nodes that were asked to meet; each look passes."""
    asked: list[str] = []

    def looked(_self: object, rooms: Mapping[str, NodeRoom]) -> dict[str, NodeReport]:
        return {name: NodeReport(node=name, host=name, findings=(passed("disk", "100 GB"),)) for name in rooms}

    def meet(_self: Meetings, trusted: Sequence[str], doubted: Sequence[str]) -> dict[str, Finding]:
        asked.extend([*trusted, *doubted])
        return {}

    monkeypatch.setattr(ray_preflight._Looks, "at", looked)
    monkeypatch.setattr(Meetings, "findings", meet)
    return asked


@pytest.mark.parametrize(("gpu", "meet"), [(True, ["a", "c"]), (False, ["a", "b", "c"])])
def test_a_node_whose_gpus_are_all_in_use_is_not_asked_to_meet_so_it_is_not_blamed_for_staying_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, met: list[str], gpu: bool, meet: list[str]
) -> None:
    rooms = [node("a", 2.0), node("b", 0.0), node("c", 1.0)]
    monkeypatch.setattr(ray_preflight, "rooms_here", lambda: tuple(rooms))
    settings = RaySettings(folder=tmp_path, ledger=tmp_path / "l", gpu=gpu)
    reports = {report.node: report for report in look_at_nodes(settings, PreflightPolicy())}
    assert met == meet
    assert all(report.passed for report in reports.values())
    assert [finding.why for finding in reports["b"].findings[1:]] == (["its GPUs are in use"] if gpu else [])


def test_gpus_that_the_workers_before_have_let_go_of_meanwhile_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, met: list[str]
) -> None:
    views = iter([[node("a", 0.0), node("b", 2.0)], [node("a", 2.0), node("b", 2.0)]])
    monkeypatch.setattr(ray_preflight, "rooms_here", lambda: tuple(next(views)))
    look_at_nodes(RaySettings(folder=tmp_path, ledger=tmp_path / "l", gpu=True), PreflightPolicy())
    assert met == ["a", "b"]
