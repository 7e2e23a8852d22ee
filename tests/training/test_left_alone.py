"""Where one rank alone is in trouble while a state is saved, judged or restored, both end with the same error."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.rank_pair import outputs_of_two

UNSPEAKABLE = "the training state holds what JSON cannot say"
Said = Mapping[str, list[object]]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """By scene, what both ranks ended with; each has met the other after each of them."""
    outputs = outputs_of_two("tests.training.left_alone_ranks", str(tmp_path_factory.mktemp("alone")))
    lines = [[json.loads(line) for line in output.splitlines()] for output in outputs]
    assert [line["met"] for rank in lines for line in rank] == [2] * (14 * 2)
    return {one["name"]: [one["said"], other["said"]] for one, other in zip(*lines, strict=True)}


@pytest.mark.parametrize(
    "scene", ["whole, judged", "whole", "shards, judged", "shards", "prepared", "looked at"], ids=str
)
def test_a_state_that_one_rank_cannot_keep_is_refused_on_both_and_names_that_rank(said: Said, scene: str) -> None:
    assert all(str(one).startswith(f"ConfigError: rank 1: {UNSPEAKABLE}") for one in said[scene]), said[scene]


def test_a_nan_on_one_rank_is_an_ill_state_on_both(said: Said) -> None:
    assert said["nan"] == ["model/0.weight on rank 1", "model/0.weight"]


def test_a_checkpoint_that_fits_one_rank_alone_is_restored_on_none(said: Said) -> None:
    assert all(str(one).startswith("IncompatibleArtifactError: rank 1: ") for one in said["restored"])
    assert all("mine" in str(one) for one in said["restored"])


@pytest.mark.parametrize(("scene", "kind"), [("of the tree", "ConfigError"), ("of the disk", "OSError")])
def test_work_that_fails_on_one_rank_fails_on_both_in_the_same_way(said: Said, scene: str, kind: str) -> None:
    assert said[scene] == [f"{kind}: rank 1: its mount is gone"] * 2


def test_work_that_fails_without_a_word_fails_on_both_by_its_kind(said: Said) -> None:
    assert said["without a word"] == ["OSError: rank 1: TimeoutError"] * 2


@pytest.mark.parametrize(
    ("scene", "lengths"), [("told", [1000, 2000]), ("told nothing", [0, 0]), ("told at length", [20_000, 40_000])]
)
def test_words_that_are_gathered_ahead_arrive_whole_whatever_their_length(
    said: Said, scene: str, lengths: list[int]
) -> None:
    assert said[scene] == [lengths] * 2
