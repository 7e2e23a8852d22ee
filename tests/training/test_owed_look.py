"""A look that was broken off since the run was told to leave is made up at the very state that it was due at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn
from typer.testing import CliRunner

from failsoft.cli import main as _main  # noqa: F401 -- hangs every command on the app
from failsoft.cli.app import app
from failsoft.errors import PreemptedError
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.callbacks import Callbacks, Listener, Moment
from failsoft.training.checkpoints.inspection import scalars_of
from failsoft.training.checkpoints.judged import judged, metrics_of, note_judged
from failsoft.training.checkpoints.retention import Best, Last, Shelved, removable
from failsoft.training.loop import TrainLoop
from failsoft.training.ranks import SoloRank
from failsoft.training.survival.agreement import NoticedRanks
from failsoft.training.survival.notice import Notice, Word
from failsoft.training.validation import ValidationPlan
from tests.training.test_loop import Death
from tests.training.test_validation import Judged, broken, mse, told, validated
from tests.training.test_validation import metrics_of as own_metrics_of
from tests.training.toys import same, weights_of


def told_in_look(folder: Path, *, at_batch: int = 1, plan: ValidationPlan | None = None, total: int = 24) -> TrainLoop:
    """A run that is told to leave in its next look, after so many batches of samples."""
    notice, seen = Notice(), [0]

    def hears(model: nn.Module, indices: NDArray[np.int64]) -> Mapping[str, float]:
        seen[0] += 1
        if seen[0] == at_batch:
            notice.give(Word(why="SIGTERM to process 7"))
        return mse(model, indices)

    return validated(folder, Judged(hears), plan, ranks=NoticedRanks(SoloRank(), notice), total=total)


def left(folder: Path, loop: TrainLoop | None = None) -> None:
    with pytest.raises(PreemptedError):
        (loop or told_in_look(folder)).run()


def steps(folder: Path, kind: str) -> list[int]:
    return [int(event.data["step"]) for event in told(folder, kind)]


def later_metrics(loop: TrainLoop) -> dict[int, dict[str, float]]:
    """As the rules of keeping see them, by position."""
    later, shelf = judged(loop.checkpoints.store.root), loop.checkpoints.store.listing()
    return {int(one.manifest.meta["position"]): metrics_of(one.manifest, later) for one in shelf}


def digests(loop: TrainLoop, beyond: int) -> dict[str, str]:
    shelf = loop.checkpoints.store.listing()
    found = [one for one in shelf if int(one.manifest.meta["position"]) > beyond]
    return {one.name: one.manifest.files["state.safetensors"].digest for one in found}


def generators(loop: TrainLoop) -> Any:
    return scalars_of(loop.checkpoints.store.listing()[-1])["rng"]


def test_it_is_made_up_once_before_the_first_new_step_and_the_run_ends_bit_for_bit_as_the_undisturbed_one(
    tmp_path: Path,
) -> None:
    whole = validated(tmp_path / "whole", Judged())
    whole.run()
    folder = tmp_path / "left"
    left(folder)
    again = validated(folder, Judged())
    again.run()
    kinds = [event.kind for event in told_all(folder)]
    assert kinds.index("validated") < kinds.index("resumed")
    assert steps(folder, "validated") == steps(tmp_path / "whole", "validated") == [4, 8, 12, 16, 20, 24]
    assert steps(folder, "validation_made_up") == [4]
    assert [one.data["metrics"] for one in told(folder, "validated")] == [
        one.data["metrics"] for one in told(tmp_path / "whole", "validated")
    ]
    assert same(weights_of(again.state.model), weights_of(whole.state.model))
    assert digests(again, 20) == digests(whole, 20) != {}
    assert generators(again) == generators(whole)


def told_all(folder: Path) -> list[Event]:
    return list(read_ledger(folder / "ledger.jsonl").events)


def test_what_it_found_counts_for_the_checkpoint_of_its_moment_which_itself_never_changes(tmp_path: Path) -> None:
    left(tmp_path)
    before = validated(tmp_path, Judged()).checkpoints.store.listing()
    again = validated(tmp_path, Judged())
    again.told = lambda: "SIGTERM to process 8" if again.state.position == 5 else None
    left(tmp_path, again)
    (found,) = (event.data["metrics"] for event in told(tmp_path, "validated"))
    assert later_metrics(again)[4].items() >= found.items()
    assert "val_loss" not in own_metrics_of(again)[4]
    assert again.checkpoints.store.listing()[0].manifest == before[0].manifest
    shelf = [Shelved.of(one.name, one.manifest) for one in again.checkpoints.store.listing()]
    later = judged(again.checkpoints.store.root)
    seen = [Shelved.of(one.name, one.manifest, later) for one in again.checkpoints.store.listing()]
    rules: list[Best | Last] = [Best(metric="val_loss"), Last(count=1)]
    assert removable(shelf, rules) == ["position-000000000004"]
    assert removable(seen, rules) == []


@pytest.mark.parametrize("times", [1, 3])
def test_one_that_is_broken_off_again_is_owed_again_and_no_step_is_made_meanwhile(tmp_path: Path, times: int) -> None:
    for _ in range(1 + times):
        left(tmp_path)
    again = validated(tmp_path, Judged())
    again.run()
    assert steps(tmp_path, "validation_broken_off") == [4] * (1 + times)
    assert [event.data["position"] for event in told(tmp_path, "run_started")] == [0] + [4] * (1 + times)
    assert steps(tmp_path, "validated")[0:2] == [4, 8]
    assert steps(tmp_path, "validation_made_up") == [4]


def dies_at(loop: TrainLoop, position: int) -> TrainLoop:
    def told_to() -> str | None:
        if loop.state.position == position:
            raise Death
        return None

    loop.told = told_to
    return loop


@pytest.mark.parametrize("position", [4, 6])
def test_it_is_not_repeated_by_workers_that_begin_again_with_the_same_checkpoint(tmp_path: Path, position: int) -> None:
    left(tmp_path)
    with pytest.raises(Death):
        dies_at(validated(tmp_path, Judged()), position).run()
    again = validated(tmp_path, Judged())
    again.run()
    assert [event.data["position"] for event in told(tmp_path, "run_started")] == [0, 4, 4]
    assert steps(tmp_path, "validated") == [4, 8, 12, 16, 20, 24]


def test_one_that_fails_is_done_as_any_other_that_fails(tmp_path: Path) -> None:
    left(tmp_path)
    with pytest.raises(Death):
        dies_at(validated(tmp_path, Judged(broken)), 6).run()
    again = validated(tmp_path, Judged())
    again.run()
    assert steps(tmp_path, "validation_failed") == [4]
    assert steps(tmp_path, "validated") == [8, 12, 16, 20, 24]
    assert "val_loss" not in later_metrics(again).get(4, {})


def test_a_look_that_is_broken_off_after_the_last_step_keeps_the_run_from_finishing_unjudged(tmp_path: Path) -> None:
    left(tmp_path, told_in_look(tmp_path, plan=ValidationPlan(every_steps=24, batch=8)))
    assert told(tmp_path, "run_finished") == []
    again = validated(tmp_path, Judged(), ValidationPlan(every_steps=24, batch=8))
    again.run()
    assert steps(tmp_path, "validated") == [24]
    assert "val_loss" in later_metrics(again)[24]
    assert len(told(tmp_path, "run_finished")) == 1


def test_a_run_that_goes_on_without_a_validation_owes_none(tmp_path: Path) -> None:
    left(tmp_path)
    again = validated(tmp_path, Judged())
    again.validation = None
    again.run()
    assert again.state.position == 24
    assert told(tmp_path, "validated") == []


def test_a_disk_that_takes_no_note_costs_the_metrics_of_one_checkpoint_and_not_the_run(tmp_path: Path) -> None:
    left(tmp_path)
    again = validated(tmp_path, Judged())
    (again.checkpoints.store.root / ".judged").mkdir()
    again.run()
    assert again.state.position == 24
    (lost,) = told(tmp_path, "judgement_lost")
    assert "position-000000000004" in lost.why
    assert steps(tmp_path, "validated")[0] == 4


def listened_to(loop: TrainLoop, listener: Listener) -> TrainLoop:
    loop.listeners = [listener]
    loop._callbacks = Callbacks(loop.listeners, loop._chronicle.tell, loop.desk.clock)
    return loop


def test_listeners_are_told_of_that_step_once_with_what_was_found(tmp_path: Path) -> None:
    moments: list[Moment] = []
    listener = Listener(name="log", call=moments.append, every_steps=4)
    left(tmp_path, listened_to(told_in_look(tmp_path), listener))
    assert moments == []
    listened_to(validated(tmp_path, Judged()), listener).run()
    assert [moment.step for moment in moments] == [4, 8, 12, 16, 20, 24]
    assert all(moment.metrics.keys() == {"val_loss"} for moment in moments)


def test_the_note_survives_a_torn_line_and_what_is_not_finite(tmp_path: Path) -> None:
    loop = validated(tmp_path, Judged())
    loop.run()
    root, (first, *_) = loop.checkpoints.store.root, loop.checkpoints.store.listing()
    assert judged(root) == {}
    (root / ".judged").write_text('{"digest": "blake3:1", "met', "utf-8")
    note_judged(root, first, {"val_loss": 0.5, "nan": float("nan")})
    with (root / ".judged").open("a", encoding="utf-8") as note:
        note.write(json.dumps({"digest": "blake3:2", "metrics": [1]}) + "\n[1]\n")
    assert judged(root) == {first.manifest.digest: {"val_loss": 0.5}, "blake3:2": {}}
    assert metrics_of(first.manifest, judged(root))["val_loss"] == 0.5


def test_the_lists_and_the_pruning_of_a_run_see_what_was_found_later(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "r"
    left(folder)
    again = validated(folder, Judged())
    again.told = lambda: "SIGTERM to process 8" if again.state.position == 5 else None
    left(folder, again)
    first, second = json.loads(asked("ls", "r", home=tmp_path))
    assert "val_loss" in first["metrics"]
    assert "val_loss" not in second["metrics"]
    rules = ("--last", "1", "--best", "1", "--metric", "val_loss")
    assert json.loads(asked("prune", "r", *rules, home=tmp_path))["would_remove"] == []


def asked(*words: str, home: Path) -> str:
    done = CliRunner().invoke(app, ["ckpt", *words, "--json", "--home", str(home)])
    assert done.exit_code == 0, done.output
    return done.stdout
