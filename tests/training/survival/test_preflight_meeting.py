"""Who is to blame when an all-reduce among nodes fails."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.training.survival.preflight_meeting import (
    Answer,
    Blame,
    Invitation,
    Pair,
    judge_meeting,
    judge_ring,
    meet,
    ring_rounds,
    sort_out,
    sort_out_many,
)

TIMED_OUT = Answer(error="timed out")


def answers(**given_: Answer) -> dict[str, Answer]:
    return given_


def right(size: int) -> Answer:
    return Answer(sum=tuple(float(rank + 1) for rank in range(size)))


def test_a_right_sum_on_each_node_blames_nobody() -> None:
    assert judge_meeting("abc", answers(a=right(3), b=right(3), c=right(3))).all_well


def test_the_node_that_did_not_come_is_to_blame_and_not_those_that_waited_for_it() -> None:
    blame = judge_meeting("abc", answers(a=TIMED_OUT, c=TIMED_OUT))
    assert blame.guilty == {"b": "did not come to the all-reduce"}


@pytest.mark.parametrize("wrong", [7.0, float("nan")])
def test_the_place_of_a_wrong_number_names_the_node_that_put_it_in(wrong: float) -> None:
    heard = Answer(sum=(1.0, wrong, 3.0))
    blame = judge_meeting("abc", answers(a=heard, b=heard, c=heard))
    assert list(blame.guilty) == ["b"]
    assert "not 2" in blame.guilty["b"]


def test_a_node_that_alone_gets_another_sum_is_to_blame_itself() -> None:
    blame = judge_meeting("abc", answers(a=right(3), b=right(3), c=Answer(sum=(1.0, 2.5, 3.0))))
    assert list(blame.guilty) == ["c"]


def test_two_wrong_parts_are_two_guilty_nodes() -> None:
    heard = Answer(sum=(9.0, 2.0, 9.0, 4.0, 5.0))
    assert set(judge_meeting("abcde", dict.fromkeys("abcde", heard)).guilty) == {"a", "c"}


def test_one_error_among_sums_is_that_node_s_own_and_errors_everywhere_name_nobody() -> None:
    assert list(judge_meeting("abc", answers(a=right(3), b=TIMED_OUT, c=right(3))).guilty) == ["b"]
    blame = judge_meeting("ab", answers(a=TIMED_OUT, b=TIMED_OUT))
    assert (blame.guilty, blame.unclear) == ({}, "timed out")


@pytest.mark.parametrize(("size", "rounds"), [(0, 0), (1, 0), (2, 1), (3, 3), (4, 2), (7, 3), (64, 2), (65, 3)])
def test_a_ring_takes_three_rounds_at_most_and_each_node_meets_both_neighbours(size: int, rounds: int) -> None:
    nodes = [f"n{place}" for place in range(size)]
    found = ring_rounds(nodes)
    assert len(found) == rounds
    for pairs in found:
        here = [node for pair in pairs for node in pair]
        assert len(here) == len(set(here))
    met = [node for pairs in found for pair in pairs for node in pair]
    assert all(met.count(node) == min(2, size - 1) for node in nodes)


class Network:
    """Nodes that meet unless one is ill, or their link is cut; a group with such a one fails without a name."""

    def __init__(self, *, ill: Sequence[str] = (), cut: Sequence[Pair] = ()) -> None:
        self.ill = set(ill)
        self.cut = {frozenset(pair) for pair in cut}
        self.rounds = 0

    def gather(self, groups: Sequence[Sequence[str]]) -> list[Blame]:
        self.rounds += 1
        return [self._meets(group) for group in groups]

    def _meets(self, group: Sequence[str]) -> Blame:
        fails = self.ill & set(group) or any(pair <= set(group) for pair in self.cut)
        return Blame(unclear="timed out") if fails else Blame()


def test_of_many_nodes_that_all_time_out_the_one_that_is_ill_is_named_in_five_rounds() -> None:
    nodes = [f"n{place}" for place in range(33)]
    network = Network(ill=["n20"])
    assert set(sort_out(nodes, network.gather)) == {"n20"}
    assert network.rounds == 5


@given(st.integers(3, 12), st.data())
def test_whichever_node_is_ill_it_alone_is_left_out(size: int, data: st.DataObject) -> None:
    nodes = [f"n{place}" for place in range(size)]
    ill = data.draw(st.sampled_from(nodes))
    assert set(sort_out(nodes, Network(ill=[ill]).gather)) == {ill}


@given(st.integers(4, 12), st.data())
def test_several_ill_nodes_are_left_out_and_what_remains_does_meet(size: int, data: st.DataObject) -> None:
    nodes = [f"n{place}" for place in range(size)]
    ill = data.draw(st.lists(st.sampled_from(nodes), unique=True, max_size=size - 1))
    network = Network(ill=ill)
    left = [node for node in nodes if node not in sort_out(nodes, network.gather)]
    assert len(left) <= 1 or network.gather([left])[0].all_well


@given(st.integers(3, 40), st.data())
def test_many_nodes_meet_in_groups_and_it_is_still_the_ill_one_alone_that_is_left_out(
    size: int, data: st.DataObject
) -> None:
    nodes = [f"n{place}" for place in range(size)]
    ill = data.draw(st.lists(st.sampled_from(nodes), max_size=1))
    assert set(sort_out_many(nodes, Network(ill=ill).gather, at_once=6)) == set(ill)


def test_groups_of_a_large_cluster_meet_at_the_same_time() -> None:
    network = Network()
    assert sort_out_many([f"n{place}" for place in range(1000)], network.gather) == {}
    assert network.rounds == 2


def test_a_cut_link_between_neighbours_costs_one_of_them_only() -> None:
    assert set(sort_out("abcd", Network(cut=[("b", "c")]).gather)) == {"c"}


def test_of_two_nodes_that_cannot_meet_one_stays_for_one_can_work_alone() -> None:
    guilty = sort_out("ab", Network(ill=["b"]).gather)
    assert list(guilty) == ["b"]
    assert "could meet nobody" in guilty["b"]


def test_nodes_that_fail_together_while_no_pair_does_are_all_left_out_and_it_is_said() -> None:
    class Crowd(Network):
        def _meets(self, group: Sequence[str]) -> Blame:
            return Blame(unclear="timed out") if len(group) > 2 else Blame()

    guilty = sort_out("abcd", Crowd().gather)
    assert set(guilty) == set("abcd")
    assert "no pair of them does" in guilty["a"]


def test_a_guilt_that_was_named_is_no_longer_asked_of_pairs() -> None:
    pairs = {("a", "b"): Blame(guilty={"b": "did not come"}), ("b", "c"): Blame(guilty={"b": "did not come"})}
    assert dict(judge_ring(pairs).guilty) == {"b": "did not come"}


def test_three_ranks_meet_by_gloo_and_a_false_part_is_heard_by_all() -> None:
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]  # public, not listed
    for part, heard in ((None, (1.0, 2.0, 3.0)), (9.0, (1.0, 9.0, 3.0))):
        brought: dict[int, Answer] = {}

        def rank(number: int, part: float | None = part, brought: dict[int, Answer] = brought) -> None:
            invitation = Invitation(
                host="127.0.0.1",
                port=store.port,
                name=f"test {part}",
                rank=number,
                size=3,
                timeout_s=20.0,
                part=part if number == 1 else None,
            )
            brought[number] = meet(invitation)

        threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert brought == {number: Answer(sum=heard) for number in range(3)}


def test_a_rank_that_waits_in_vain_comes_back_with_words() -> None:
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]  # public, not listed
    alone = Invitation(host="127.0.0.1", port=store.port, name="alone", rank=0, size=2, timeout_s=0.5)
    assert meet(alone).error
