"""Two real ranks of a sharded run (FSDP2), each with a disk of its own: the shards meet on the remote store alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failsoft.health.ledger import read_ledger
from tests.rank_pair import outputs_of_two

SHARDS = ["shard-00000-of-00002.safetensors", "shard-00001-of-00002.safetensors"]
NAMES = {position: f"position-{position:012d}" for position in (8, 16, 24)}
Told = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("apart")


@pytest.fixture(scope="module")
def told(folder: Path) -> Told:
    """What each rank saw, by scene."""
    outputs = outputs_of_two("tests.training.apart_ranks", str(folder), f"file://{folder}/store")
    lines = [json.loads(line) for text in outputs for line in text.splitlines()]
    return {line["scene"]: [one for one in lines if one["scene"] == line["scene"]] for line in lines}


def test_each_rank_brings_its_shard_to_the_store_and_no_disk_holds_a_checkpoint(told: Told, folder: Path) -> None:
    for seen in told["undisturbed"]:
        assert NAMES[24] in seen["there"]
        assert seen["here"] == []
    events = read_ledger(folder / "first-0" / "ledger.jsonl").events
    (met,) = (event for event in events if event.kind == "shards_meet_remotely")
    assert "rank 1" in met.why
    assert not [event for event in events if event.kind in {"checkpoint_failed", "checkpoint_mirror_dropped"}]


def test_two_empty_machines_go_on_from_there_and_end_bit_for_bit_as_the_undisturbed_run(told: Told) -> None:
    assert [seen["differs"] for seen in told["again"]] == [[], []]
    assert all(NAMES[24] in seen["there"] for seen in told["again"])


def test_a_rank_brings_only_the_shards_that_hold_something_of_its_own(told: Told) -> None:
    first, second = told["again"]
    assert first["brought"] == [["manifest.json", SHARDS[0], "state.json"]]
    assert second["brought"] == [["manifest.json", *SHARDS, "state.json"]]  # what is alike on all lies in the first
    assert [first["left"], second["left"]] == [0, 0]


def test_what_was_undone_is_not_gone_on_from_and_leaves_the_store(told: Told) -> None:
    first, second = told["withdrawn"]
    older = first["found"][1]
    assert first["found"] == second["found"] == [24, older, older]
    assert first["gone"] == [NAMES[24]]
    assert first["there"] == [NAMES[older]]


def test_a_rank_that_alone_cannot_take_part_keeps_nobody_waiting_and_its_words_are_everybodys(told: Told) -> None:
    first, second = (seen["said"] for seen in told["in_trouble"])
    assert first == second
    assert first["whole"] == "OSError: rank 1: manifest.json is gone"
    assert first["needed"].startswith("ArtifactMissingError: not all ranks can get their shards of position-")
    assert "rank 1: the model lies as no checkpoint does" in first["needed"]


def test_one_rank_takes_on_what_two_have_written(told: Told) -> None:
    (alone,) = told["other_size"]
    assert alone["position"] == told["withdrawn"][0]["found"][1]
    assert alone["files"] == len([*SHARDS, "state.json", "manifest.json"])
