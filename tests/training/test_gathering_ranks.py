"""A gathering that is under way is ended by whoever began it, however it leaves."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from failsoft.training.ranks import gather_ahead, ranks_here
from tests.rank_pair import ends_of_two

Told = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """By scene, what two gloo processes saw of it. Neither was taken down by a thread of gloo's as Python ended."""
    codes, outputs = ends_of_two("tests.training.gathering_ranks", str(tmp_path_factory.mktemp("gathering")))
    assert codes == [0, 0]
    first, second = ([json.loads(line) for line in output.splitlines()] for output in outputs)
    return {one["scene"]: one | other for one, other in zip(first, second, strict=True)}


@pytest.mark.parametrize(
    ("scene", "said"),
    [
        ("nobody hears", "left"),
        ("the step raises", "ValueError the step"),
        ("told to leave", "PreemptedError SIGTERM"),
        ("interrupted", "KeyboardInterrupt"),
        ("a word", "ValueError the step"),
        ("at length", "ValueError the step"),
    ],
    ids=str,
)
def test_who_leaves_a_gathering_under_way_waits_for_the_others_and_then_leaves_by_what_it_left_for(
    told: Told, scene: str, said: str
) -> None:
    assert told[scene]["said"] == said
    assert told[scene]["waited"] is True


def test_the_other_rank_hears_all_of_it_also_of_a_text_that_takes_a_second_gathering(told: Told) -> None:
    assert told["the step raises"]["heard"] == [1, 1]
    assert told["at length"]["heard"] == [40_000, 40_000]


class Lost:
    """The work of a group whose other rank is gone."""

    def wait(self) -> None:
        raise RuntimeError("Connection closed by peer")


def test_who_leaves_by_an_error_tells_that_one_and_beside_it_that_the_other_rank_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = f"file://{tmp_path}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1, timeout=timedelta(seconds=30))
    try:
        ranks = ranks_here()
        monkeypatch.setattr(dist, "all_gather", lambda *_, **__: Lost())
        with pytest.raises(ValueError, match="the step") as caught, gather_ahead(ranks, "a"):
            raise ValueError("the step")
        assert caught.value.__notes__ == [
            "the gathering that was under way could not be ended either: Connection closed by peer"
        ]
        with pytest.raises(RuntimeError, match="by peer"), gather_ahead(ranks, "a"):
            torch.zeros(1)
    finally:
        dist.destroy_process_group()
