"""A state machine is an enum, a table of moves and one door."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from failsoft.errors import ConfigError, IllegalMoveError

StateT = TypeVar("StateT", bound=StrEnum)


@dataclass(frozen=True, kw_only=True)
class Move(Generic[StateT]):
    """One move that happened: where from, where to, and why in words."""

    before: StateT
    after: StateT
    why: str


class Lifecycle(Generic[StateT]):
    """Holds a state and lets it change only along the table.

    Args:
        table: for each state the states it may move to; every state has an entry.
        start: the first state.
        on_move: told of each move before it takes effect; if it raises, the state stays as it was. This is where a
            move is made durable.
    """

    def __init__(
        self,
        table: Mapping[StateT, frozenset[StateT]],
        start: StateT,
        on_move: Callable[[Move[StateT]], None] | None = None,
    ) -> None:
        missing = [state for state in type(start) if state not in table]
        if missing:
            raise ConfigError(
                f"the table of moves has no entry for {missing}; list every state, terminal ones as empty"
            )
        self._table = table
        self._state = start
        self._on_move = on_move

    @property
    def state(self) -> StateT:
        """The state now."""
        return self._state

    def may_move(self, to: StateT) -> bool:
        """Whether the table lists a move from here to ``to``."""
        return to in self._table[self._state]

    def move(self, to: StateT, *, why: str) -> Move[StateT]:
        """Go to ``to``, or raise :class:`IllegalMoveError` and stay."""
        if not self.may_move(to):
            allowed = ", ".join(sorted(self._table[self._state])) or "nothing: it is terminal"
            raise IllegalMoveError(
                f"no move from {self._state} to {to} ({why}); from {self._state} one may go to {allowed}"
            )
        move = Move(before=self._state, after=to, why=why)
        if self._on_move is not None:
            self._on_move(move)
        self._state = to
        return move
