"""Two gloo ranks: one is slow, one can't validate; both come to the same and end alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from failsoft.health.ledger import Event, read_ledger
from failsoft.training.accounting.exactness import verify
from failsoft.training.batches import GlobalBatches
from failsoft.training.letters.diagnosis import Seen
from failsoft.training.letters.letterbook import LETTERS_FOLDER, read_letter_book
from failsoft.training.letters.rebuild import LoopRebuild
from failsoft.training.letters.replay import Replayer
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.summary import summarise
from tests.rank_pair import heard_from
from tests.training.pace.pace_ranks import with_plain_model
from tests.training.toys import SAMPLES, ToyTask, toy_loop

ROOT = Path(__file__).resolve().parents[3]
Told = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pace")


@pytest.fixture(scope="module")
def told(home: Path) -> Told:
    """What each rank ended with, by trial."""
    command = [sys.executable, "-m", "tests.training.pace.pace_ranks"]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([*command, str(rank), str(home)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        lines = [text.splitlines() for text in heard_from(ranks)]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    found: Told = {}
    for line in (line for own in lines for line in own if line.startswith("{")):
        result = json.loads(line)
        found.setdefault(result.pop("trial"), []).append(result)
    return found


def events(home: Path, trial: str, *kinds: str) -> list[Event]:
    return [event for event in read_ledger(home / trial / "ledger.jsonl").events if event.kind in kinds]


def test_all_trials_end_alike_on_both_ranks(told: Told) -> None:
    assert len(told) == 9
    for name, (first, second) in told.items():
        total = 30 if name == "in earnest" else 200
        steps = total - 91 if name == "undone" else total
        assert (first["position"], first["step"]) == (second["position"], second["step"]) == (total, steps), name
        for tensor in (tensor for tensor in first["weights"] if "running" not in tensor):
            assert first["weights"][tensor] == second["weights"][tensor], (name, tensor)


def test_a_slow_rank_is_named_once_when_it_begins_and_once_when_it_ends(told: Told, home: Path) -> None:
    assert events(home, "even", "degradation_began") == []
    (began,) = events(home, "named", "degradation_began")
    (ended,) = events(home, "named", "degradation_ended")
    assert (began.data["degradation"], began.data["rank"], began.data["name"]) == ("slow_rank", 1, "rank 1")
    assert began.data["factor"] == pytest.approx(3.0)
    assert began.data["host"]
    assert 30 + 3 * 6 - 1 <= began.data["position"] < 30 + 4 * 6
    assert 100 + 3 * 6 <= ended.data["position"] < 100 + 4 * 6
    assert events(home, "named", "degradation_changed") == []


def test_by_the_machines_clock_the_rank_that_waits_for_the_slow_one_is_not_called_slow(told: Told, home: Path) -> None:
    (began,) = events(home, "in earnest", "degradation_began")
    assert (began.data["degradation"], began.data["rank"]) == ("slow_rank", 1)
    assert began.data["took_s"] >= 0.12
    assert began.data["factor"] > 1.5


def test_naming_a_slow_rank_changes_nothing_in_the_run(told: Told) -> None:
    assert told["named"] == told["even"]


def test_the_remedy_lowers_the_share_and_gives_it_back_and_every_sample_counts_once(told: Told, home: Path) -> None:
    moves = events(home, "remedied", "degradation_began", "degradation_changed", "degradation_ended")
    kinds = [move.kind for move in moves]
    assert kinds[0] == "degradation_began"
    assert kinds[-1] == "degradation_ended"
    assert moves[0].data["shares"] == [16, 5]
    assert moves[-2].data["shares"] == [16, 16]
    assert {move.data["degradation"] for move in moves} == {"slow_rank"}
    assert verify(home / "remedied").sound


def test_the_weights_are_those_of_the_even_division_but_for_rounding(told: Told) -> None:
    for name, wanted in told["plain"][0]["weights"].items():
        np.testing.assert_allclose(told["remedied"][0]["weights"][name], wanted, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_rank_that_is_still_slow_at_its_floor_makes_updates_smaller_for_a_while(told: Told, home: Path) -> None:
    moves = events(home, "hopeless", "degradation_began", "degradation_changed", "degradation_ended")
    smaller = [move for move in moves if move.data["degradation"] == "smaller_batch"]
    assert [move.data.get("updates") for move in smaller][:2] == [2, 4]
    assert smaller[-1].kind == "degradation_ended"
    assert verify(home / "hopeless").sound
    kinds = summarise(read_ledger(home / "hopeless" / "ledger.jsonl").events, run="hopeless").degraded.kinds
    assert set(kinds) == {"slow_rank", "smaller_batch"}
    assert 0 < kinds["smaller_batch"].batches < kinds["slow_rank"].batches < 200


@pytest.mark.usefixtures("told")
def test_letters_of_undone_batches_say_of_each_rank_what_it_had_also_when_that_was_uneven(home: Path) -> None:
    letters = read_letter_book(home / "undone" / LETTERS_FOLDER).letters
    undone: dict[int, dict[int, tuple[int, ...]]] = {}
    for letter in (letter for letter in letters if letter.undone_at is not None):
        undone.setdefault(letter.position, {})[letter.rank] = letter.sample_ids
    batches = GlobalBatches(num_samples=SAMPLES, global_batch=8, seed=3)
    assert sorted(undone) == list(range(86))
    for position, parts in undone.items():
        assert sorted(parts[0] + parts[1]) == sorted(batches.global_indices(position).tolist()), position
    sizes = [(len(parts[0]), len(parts[1])) for _, parts in sorted(undone.items())]
    assert sizes[0] == (4, 4)
    assert sizes[85] == (6, 2)


def rebuilt(folder: Path) -> Replayer:
    """The run as one process builds it again, to play both ranks."""

    def build(_seed: int | None) -> TrainLoop:
        return with_plain_model(toy_loop(folder, plan=LoopPlan(total_batches=200, seed=3)))

    events = read_ledger(folder / "ledger.jsonl").events
    rebuild = LoopRebuild(build=build, task=ToyTask)
    return Replayer(rebuild=rebuild, book=read_letter_book(folder / LETTERS_FOLDER), events=events)


@pytest.mark.usefixtures("told")
def test_a_batch_that_died_under_uneven_shares_is_met_again_on_its_very_state(home: Path) -> None:
    """Also the shares on the way there: with those of the dead batch alone the walk would end in other bits."""
    divisions = [event.data["shares"] for event in events(home, "undone", "work_divided")]
    assert divisions[0] == [16, 5]
    letters = read_letter_book(home / "undone" / LETTERS_FOLDER).at(86)
    assert [(letter.shares, len(letter.sample_ids)) for letter in letters] == [((16, 6), 6), ((16, 6), 2)]
    for position in (86, 88):
        found = rebuilt(home / "undone").replay(position)
        assert found.evidence.state_met, found.as_data()
        assert found.evidence.draws_met
        assert found.trials[0].seen is Seen.FINE  # the planned fault does not strike again
    ignorant = rebuilt(home / "undone")
    ignorant.events = [event for event in ignorant.events if event.kind != "work_divided"]
    assert ignorant.replay(86).evidence.state_met is False


def test_one_rank_that_validates_in_smaller_batches_keeps_nobody_waiting(told: Told, home: Path) -> None:
    looks = events(home, "shrinks", "validated")
    assert [look.data["step"] for look in looks] == list(range(20, 201, 20))
    assert all(look.data["metrics"]["val_ids"] == 9.5 for look in looks)
    assert all((look.data["failures"], look.data["batch"]) == (1, 4) for look in looks)


def test_a_metric_that_one_rank_could_not_compute_is_absent_and_the_looks_rest(told: Told, home: Path) -> None:
    failed = events(home, "gives up", "validation_failed")
    assert [event.data["step"] for event in failed] == [20, 40, 60]
    assert all(event.data["ranks"] == [1] for event in failed)
    assert events(home, "gives up", "validated") == []
    (rest,) = events(home, "gives up", "degradation_began")
    assert rest.data["name"] == "validation"


def test_a_validated_run_is_the_run_that_is_not_to_the_bit(told: Told) -> None:
    assert told["shrinks"] == told["gives up"] == told["even"]
