from __future__ import annotations

from typing import Any

from failsoft.health.ledger import Event, Side
from failsoft.training.letters.history import Rollback, history_of
from failsoft.training.letters.letter import UNDONE, DeadLetter
from failsoft.training.letters.letterbook import LetterBook


def letter(position: int, *, undone_at: int | None = None) -> DeadLetter:
    reason = "loss is not finite" if undone_at is None else UNDONE
    return DeadLetter(position=position, step=0, rank=0, reason=reason, sample_ids=(), undone_at=undone_at)


def event(kind: str, **data: Any) -> Event:
    return Event(at_s=0.0, side=Side.TRAINING, kind=kind, subject="run", why="", data=data)


BOOK = LetterBook(letters=(letter(4, undone_at=11), letter(5, undone_at=11), *map(letter, range(6, 12))))


def test_a_rollback_is_known_by_the_batches_that_it_took_back() -> None:
    history = history_of(BOOK)
    assert history.rollbacks == (Rollback(since=4, at=11),)
    assert sorted(history.refused) == [6, 7, 8, 9, 10, 11]


def test_a_batch_of_the_burst_met_the_steps_that_were_undone_only_later() -> None:
    history = history_of(BOOK)
    assert history.undone_in(range(8)) == frozenset()
    assert history.undone_in(range(11)) == frozenset(range(4, 11))


def test_a_rollback_far_beyond_what_is_walked_costs_no_more_than_the_walk() -> None:
    told = [event("run_started", position=0), event("rolled_back", position=2**62, snapshot_position=0)]
    history = history_of(LetterBook(letters=()), told)
    assert history.undone_in(range(2**62 - 3, 2**62 + 4)) == frozenset(range(2**62 - 3, 2**62))
    assert history.undone_in(range(2**62 - 3, 2**62 - 1)) == frozenset()


def test_a_rollback_that_took_nothing_back_is_known_from_the_ledger() -> None:
    told = [event("run_started", position=0), event("rolled_back", position=18, snapshot_position=13)]
    assert history_of(BOOK, told).rollbacks == (Rollback(since=4, at=11), Rollback(since=13, at=18))


def test_a_division_holds_from_its_position_on_until_a_restart_which_begins_evenly() -> None:
    told = [
        event("run_started", position=0),
        event("work_divided", holds_from=10, shares=[16, 8]),
        event("work_divided", holds_from=30, shares=[16, 4]),
        event("run_started", position=20),
        event("work_divided", holds_from=40, shares=[8, 16]),
        event("work_divided", holds_from=35, shares=[16, 16]),
    ]
    history = history_of(LetterBook(letters=()), told)
    shares = {position: history.shares_at(position, 2) for position in (0, 9, 10, 19, 20, 34, 35, 50)}
    assert shares == {0: None, 9: None, 10: (16, 8), 19: (16, 8), 20: None, 34: None, 35: (16, 16), 50: (16, 16)}
    assert history.shares_at(10, 4) is None  # of another world


def test_a_rollback_that_a_restart_undid_did_not_happen() -> None:
    told = [
        event("rolled_back", position=11, snapshot_position=4),
        event("rolled_back", position=18, snapshot_position=13),
        event("run_started", position=12),
    ]
    assert history_of(LetterBook(), told).rollbacks == (Rollback(since=4, at=11),)


def test_a_stretch_that_was_met_again_is_not_undone() -> None:
    told = [event("rolled_back", position=11, snapshot_position=4, replayed_from=4)]
    assert history_of(LetterBook(), told).rollbacks == ()


def test_the_rate_that_a_rollback_went_on_with_is_known_where_the_ledger_says_so() -> None:
    record = {"rate_factor": 0.5}
    told = [event("rolled_back", position=11, snapshot_position=4, reproduction=record, replayed_from=None)]
    history = history_of(LetterBook(), told)
    assert (history.rate_factor_at(11), history.rate_factor_at(12)) == (0.5, None)
