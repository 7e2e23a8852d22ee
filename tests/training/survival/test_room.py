from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.training.survival.room import (
    NodeRoom,
    NodeState,
    WorkerNeed,
    WorkerRange,
    fitting,
    fitting_when_idle,
    in_words,
    silent,
)

ONE = WorkerNeed(resources={"CPU": 1.0})


def node(name: str, free: float, total: float, state: NodeState = NodeState.READY) -> NodeRoom:
    return NodeRoom(node=name, name=name, free={"CPU": free}, total={"CPU": total}, state=state)


def test_only_nodes_that_answer_stay_and_are_not_excluded_hold_workers() -> None:
    rooms = [
        node("a", 2.0, 4.0),
        node("b", 4.0, 4.0, NodeState.DRAINING),
        node("c", 4.0, 4.0, NodeState.SILENT),
        node("d", 4.0, 4.0),
    ]
    excluded = frozenset({"d"})
    assert (fitting(rooms, ONE, excluded), fitting_when_idle(rooms, ONE, excluded)) == (2, 4)
    assert silent(rooms) == {"c"}


def test_a_worker_sits_on_one_node_and_needs_all_that_it_asks_for_there() -> None:
    both = WorkerNeed(resources={"CPU": 2.0, "GPU": 1.0})
    here = NodeRoom(node="a", name="a", free={"CPU": 5.0, "GPU": 1.0}, total={"CPU": 8.0, "GPU": 4.0})
    without = NodeRoom(node="b", name="b", free={"CPU": 64.0}, total={"CPU": 64.0})
    halves = [node("c", 1.0, 1.0), node("d", 1.0, 1.0)]
    assert fitting([here, without], both) == 1
    assert fitting(halves, WorkerNeed(resources={"CPU": 2.0})) == 0


def test_shares_of_a_cpu_add_up_as_ray_counts_them() -> None:
    assert WorkerNeed(resources={"CPU": 0.1}).fits_in({"CPU": 0.3}) == 3


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=6), st.integers(1, 3))
def test_what_is_free_never_holds_more_than_what_is_there(nodes: list[tuple[int, int]], cpus: int) -> None:
    rooms = [node(str(place), min(free, total), total) for place, (free, total) in enumerate(nodes)]
    need = WorkerNeed(resources={"CPU": float(cpus)})
    assert 0 <= fitting(rooms, need) <= fitting_when_idle(rooms, need)


@pytest.mark.parametrize(
    ("text", "limits", "given_back"), [("4", (4, 4), 4), ("1:4", (1, 4), (1, 4)), ("2:2", (2, 2), 2)]
)
def test_a_range_is_written_as_a_number_or_as_two(text: str, limits: tuple[int, int], given_back: object) -> None:
    found = WorkerRange.parse(text)
    assert ((found.least, found.most), found.given()) == (limits, given_back)
    assert WorkerRange.of(found.given()) == found


@pytest.mark.parametrize(
    ("text", "said"), [("0", "workers is 0"), ("3:1", "smaller number first"), ("a:b", "like 1:4"), ("1:", "like 1:4")]
)
def test_a_range_that_holds_nothing_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        WorkerRange.parse(text)


def test_a_worker_that_needs_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="give it a CPU or a GPU"):
        WorkerNeed(resources={"CPU": 0.0})


@pytest.mark.parametrize(("fit", "chosen"), [(0, None), (1, None), (2, 2), (3, 3), (9, 4)])
def test_as_many_as_fit_are_chosen_between_the_least_and_the_most(fit: int, chosen: int | None) -> None:
    assert WorkerRange(least=2, most=4).choose(fit) == chosen


def test_people_who_wait_are_told_what_is_free_where() -> None:
    rooms = [node("a", 0.0, 1.0), node("b", 1.0, 1.0, NodeState.DRAINING), node("head", 0.0, 0.0)]
    assert in_words(rooms, ONE) == "0 of 1 CPU free on a; b is draining"
    assert in_words(rooms, ONE, frozenset({"a"})) == "a is excluded; b is draining"
    assert in_words([], ONE) == "the cluster has no node that could hold one"
