"""The simplest rungs, for any task: a constant, and a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from failsoft.serving.seam import RungAnswer


class ConstantRung:
    """Says the same to everything: the last resort. It claims no confidence and can't fail.

    Args:
        output: the answer; as JSON can carry it, neither None nor an empty text.
        name: what callers read as ``source``.
    """

    def __init__(self, output: Any, *, name: str = "constant") -> None:
        self.name = name
        self._answer = RungAnswer(output=output, source=name)

    def answer(self, _item: Any, /) -> RungAnswer:
        """The constant."""
        return self._answer


class FunctionRung:
    """Answers what a function returns.

    Args:
        name: what callers read as ``source``.
        function: makes the output of an item; None leaves it to the next rung, as does an error, which is counted.
    """

    def __init__(self, name: str, function: Callable[[Any], Any]) -> None:
        self.name = name
        self._function = function

    def answer(self, item: Any, /) -> RungAnswer | None:
        """The function's output, without a confidence; a :class:`RungAnswer` is handed on as it is."""
        found = self._function(item)
        if found is None or isinstance(found, RungAnswer):
            return found
        return RungAnswer(output=found, source=self.name)
