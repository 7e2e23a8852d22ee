from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from failsoft.training.survival.suspicion import Standing, Statement, Suspicion, standing_of, statement_of, suspect

C, B, E = Standing.COLLECTIVE, Standing.BACKWARD, Standing.ELSEWHERE


def said(rank: int, standing: Standing) -> Statement:
    return Statement(rank=rank, phase="step", position=7, standing=standing, where=f"file.py:{rank} call")


@pytest.mark.parametrize(
    ("standings", "suspects"),
    [
        ((C, E), (1,)),
        ((E, C), (0,)),
        ((E, C, C, E), (0, 3)),
        ((B, E, B), (1,)),
        ((C, B, C), (1,)),
        ((C, None, E), (1,)),  # a rank that can't even speak comes first
        ((None, None), (0, 1)),
        ((C, C), ()),
        ((B, B), ()),
        ((E, E), ()),
    ],
)
def test_the_one_that_waits_for_nobody_is_suspected_whoever_gave_the_alarm(
    standings: tuple[Standing | None, ...], suspects: tuple[int, ...]
) -> None:
    statements = {rank: said(rank, standing) for rank, standing in enumerate(standings) if standing is not None}
    assert suspect(statements, len(standings)).ranks == suspects


def test_where_the_statements_do_not_tell_nobody_is_named_and_the_reason_is() -> None:
    assert suspect({0: said(0, C), 1: said(1, C)}, 2) == Suspicion(
        ranks=(), why="all wait in collectives: the network, or ranks that call different collectives"
    )


def test_a_statement_survives_its_file_and_a_torn_one_is_none() -> None:
    text = said(3, B).to_json()
    assert statement_of(text) == said(3, B)
    assert [statement_of(text[:end]) for end in range(len(text))] == [None] * len(text)
    for odd in ("7", "{}", '{"standing": "in a hurry"}', '{"standing": "in a collective"}'):
        assert statement_of(odd) is None


@pytest.mark.parametrize(
    ("modules", "standing"),
    [
        (("__main__", "torch.distributed.distributed_c10d"), C),
        (("train_jobs.build", "torch.nn.parallel.distributed"), C),
        (("failsoft.training.backward", "torch.autograd.graph"), B),
        (("torch.distributed.fsdp.fully_sharded_data_parallel", "my_model"), E),  # a forward pass under FSDP
        (("torch.distributed_of_another_kind",), E),
    ],
)
def test_a_thread_stands_where_its_innermost_call_is_whatever_is_around_it(
    modules: tuple[str, ...], standing: Standing
) -> None:
    call: Callable[[], FrameType] = sys._getframe
    for module in reversed(modules):
        names: dict[str, Any] = {"__name__": module, "inner": call}
        exec("def call():\n    return inner()", names)  # noqa: S102 -- a function of another module
        call = names["call"]
    assert standing_of(call()) is standing


def test_no_thread_stands_elsewhere() -> None:
    assert standing_of(None) is E
