"""One process plays both ranks of a real two-rank run again."""

from __future__ import annotations

from pathlib import Path

from failsoft.health.faults import Fault, FaultKind
from failsoft.training.letters.diagnosis import Cause
from failsoft.training.letters.letterbook import read_letter_book
from failsoft.training.letters.requeue import append_requeue
from tests.training.replay_toys import ToyRun
from tests.training.test_two_ranks import run_two


def test_one_process_reaches_the_state_of_two_ranks_bit_for_bit(tmp_path: Path) -> None:
    nan = Fault(kind=FaultKind.NAN_BATCH, position=5, rank=1)
    inf = Fault(kind=FaultKind.INF_GRADIENT, position=13, rank=0)
    run_two(tmp_path / "run", nan, inf)
    run = ToyRun(folder=tmp_path / "run")
    for position, start in ((5, "the beginning"), (13, "position-000000000009")):
        found = run.replay(position)
        assert found.evidence.state_met, found.as_data()
        assert f"from {start}" in found.reached
        assert (found.diagnosis.cause, found.evidence.draws_met) == (Cause.HARDWARE, True)
    letters = read_letter_book(tmp_path / "run" / "dead_letters").at(5)
    assert [(letter.rank, letter.world, letter.reason) for letter in letters] == [
        (0, 2, "gradient is not finite"),
        (1, 2, "loss is not finite"),
    ]
    requeued = append_requeue(tmp_path / "run", 5, at_s=0.0)
    assert requeued.sample_indices == tuple(run.build().batches.global_indices(5).tolist())
