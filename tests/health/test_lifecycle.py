"""One door: only listed moves, each told before it takes effect."""

from __future__ import annotations

from enum import StrEnum
from itertools import product

import pytest

from failsoft.errors import ConfigError, IllegalMoveError
from failsoft.health.lifecycle import Lifecycle, Move


class Light(StrEnum):
    RED = "red"
    GREEN = "green"
    BROKEN = "broken"


TABLE = {
    Light.RED: frozenset({Light.GREEN, Light.BROKEN}),
    Light.GREEN: frozenset({Light.RED, Light.BROKEN}),
    Light.BROKEN: frozenset[Light](),
}


@pytest.mark.parametrize(("before", "after"), list(product(Light, Light)))
def test_exactly_the_listed_moves_are_made(before: Light, after: Light) -> None:
    life = Lifecycle(TABLE, before)
    assert life.may_move(after) == (after in TABLE[before])
    if life.may_move(after):
        assert life.move(after, why="test") == Move(before=before, after=after, why="test")
        assert life.state is after
    else:
        with pytest.raises(IllegalMoveError, match=f"no move from {before} to {after} \\(test\\)"):
            life.move(after, why="test")
        assert life.state is before


def test_a_terminal_state_says_that_it_is_one() -> None:
    with pytest.raises(IllegalMoveError, match="terminal"):
        Lifecycle(TABLE, Light.BROKEN).move(Light.RED, why="hope")


def test_a_move_that_could_not_be_made_durable_is_not_made() -> None:
    def disk_full(move: Move[Light]) -> None:
        raise OSError(f"no space to write {move.after}")

    life = Lifecycle(TABLE, Light.RED, disk_full)
    with pytest.raises(OSError, match="no space"):
        life.move(Light.GREEN, why="time")
    assert life.state is Light.RED


def test_a_move_is_told_once_and_before_it_takes_effect() -> None:
    told: list[tuple[Light, Move[Light]]] = []
    life = Lifecycle(TABLE, Light.RED, lambda move: told.append((life.state, move)))
    move = life.move(Light.GREEN, why="time")
    assert told == [(Light.RED, move)]


def test_a_table_that_forgets_a_state_is_refused() -> None:
    with pytest.raises(ConfigError, match="broken"):
        Lifecycle({Light.RED: frozenset(), Light.GREEN: frozenset()}, Light.RED)
