from __future__ import annotations

from failsoft.training.companion import Companion, GuardOptions


def test_a_run_that_had_nothing_to_do_has_counts_of_0() -> None:
    """As after a second ``fit`` of a trainer that is done, or without a batch."""
    run = Companion(GuardOptions())
    assert (run.position, run.step, run.refused) == (0, 0, 0)
