"""What one rank alone finds wrong, told to all ranks, so that none of them waits in a collective for one that left it.

Work that only looks at what a rank holds may fail on one rank and not on the others (a tensor that can't be kept, a
file that is gone on one node). Who raises there at once leaves the others in their next collective, until that runs
out of time. So the rank keeps the error until all have met, and then all of them raise it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from failsoft.errors import ConfigError, FailsoftError, error_named
from failsoft.training.ranks import Ranks, any_rank, gather_ahead
from failsoft.training.state import FlatState, TrainingState, first_unhealthy, flatten

Done = TypeVar("Done")
_PROBLEM = "problem"


@contextmanager
def begun(ranks: Ranks, word: Mapping[str, Any]) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Begin to tell all ranks a word of plain data; it is ended with the block, as :func:`gather_ahead` says.

    Yields:
        What waits for the words of all, by rank.

    Raises:
        ConfigError: when the words are heard, on all ranks: one of them said that it :func:`declines`.
    """
    with gather_ahead(ranks, json.dumps(dict(word))) as hear:

        def heard() -> list[dict[str, Any]]:
            told: list[dict[str, Any]] = [json.loads(text) for text in hear()]
            _refuse([str(one.get(_PROBLEM) or "") for one in told], ConfigError)
            return told

        yield heard


def declines(ranks: Ranks, problem: str) -> NoReturn:
    """This rank can't take part in what the others have :func:`begun`.

    Raises:
        ConfigError: always, on all ranks.
    """
    with begun(ranks, {_PROBLEM: problem}) as heard:
        heard()
    raise ConfigError(problem)


def done_by_all(ranks: Ranks, work: Callable[[], Done]) -> Done:
    """Do something that needs no other rank, and go on only if it was done on all. All ranks call it together.

    Args:
        ranks: that wait for each other here.
        work: raises an error of the tree, or OSError, where it can't be done; another error is a bug, and leaves at
            once.

    Raises:
        FailsoftError, OSError: on all ranks, of the kind that the first of them had, naming those that failed.
    """
    failed: FailsoftError | OSError | None = None
    done: list[Done] = []
    try:
        done.append(work())
    except (FailsoftError, OSError) as error:
        failed = error
    if any_rank(ranks, failed is not None):
        if ranks.world == 1 and failed is not None:
            raise failed
        kind = "OSError" if isinstance(failed, OSError) else type(failed).__name__
        why = "" if failed is None else str(failed) or type(failed).__name__  # a timeout often says no word of its own
        told = [json.loads(text) for text in ranks.gather(json.dumps([kind, why]))]
        first = next((kind for kind, why in told if why), "OSError")
        _refuse([why for _, why in told], OSError if first == "OSError" else lambda said: error_named(first, said))
    return done[0]


def judged_together(ranks: Ranks, state: TrainingState) -> tuple[FlatState, str | None]:
    """A state taken apart, and the name of what is not finite on some rank; all ranks call it together.

    Returns:
        None for the name when all numbers of all ranks are finite; else the same verdict on all ranks.

    Raises:
        ConfigError: on all ranks: one of them holds what can't be kept.
    """
    flat, problem = taken_apart(state)
    ill = None if flat is None else first_unhealthy(flat.tensors)
    if any_rank(ranks, flat is None or ill is not None):
        told = [json.loads(text) for text in ranks.gather(json.dumps([problem, ill]))]
        _refuse([str(one[0]) for one in told], ConfigError)
        elsewhere = [f"{one[1]} on rank {rank}" for rank, one in enumerate(told) if one[1] is not None]
        ill = ill or next(iter(elsewhere), "a tensor of another rank")
    if flat is None:
        raise ConfigError(problem)
    return flat, ill


def keepable(ranks: Ranks, state: TrainingState) -> FlatState:
    """A state taken apart by a rank whose fellows have :func:`begun` next, if they can; no collective if this one can.

    Raises:
        ConfigError: on all ranks, where they hear: this one holds what can't be kept.
    """
    flat, problem = taken_apart(state)
    if flat is None:
        declines(ranks, problem)
    return flat


def taken_apart(state: TrainingState) -> tuple[FlatState | None, str]:
    """The state as :func:`failsoft.training.state.flatten` gives it, or why it can't be kept on this rank."""
    try:
        return flatten(state), ""
    except ConfigError as error:
        return None, str(error)


def _refuse(problems: list[str], error: Callable[[str], Exception]) -> None:
    if any(problems):
        of = [f"rank {rank}: {why}" if len(problems) > 1 else why for rank, why in enumerate(problems) if why]
        raise error("; ".join(of))
