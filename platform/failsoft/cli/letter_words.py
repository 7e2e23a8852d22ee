"""What a replay found, in words, with the command to run next."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from failsoft.training.letters.replay import Replay

_NAMED = 16


def in_words(run: str, found: Replay) -> list[str]:
    """Lines below the table of trials: the state, notes, who is bad alone, the verdict, and the next command."""
    said = [f"state: {found.reached}", *(f"note: {note}" for note in found.notes), *_blamed(found)]
    return [*said, f"verdict: {found.diagnosis.cause}: {found.diagnosis.why}", f"next: {_next(run, found)}"]


def _blamed(found: Replay) -> list[str]:
    blamed = list(found.blamed.samples)
    more = f" and {len(blamed) - _NAMED} more" if len(blamed) > _NAMED else ""
    lines = [f"bad alone: {', '.join(map(str, blamed[:_NAMED]))}{more}"] if blamed else []
    if not found.blamed.complete:
        lines.append(f"note: not every sample was looked at: {found.blamed.why}")
    return lines


def _next(run: str, found: Replay) -> str:
    from failsoft.training.letters.diagnosis import Cause

    look = f"failsoft dlq show {run} {found.position}"
    again = f"failsoft dlq requeue {run} {found.position}"
    return {
        Cause.DATA: _after_bad_data(found, look, again),
        Cause.NUMERICS: "train this part in higher precision, or with a lower loss scale, in a new run",
        Cause.STATE: f"see how the weights moved: failsoft ckpt ls {run}; the batch may go again: {again}",
        Cause.HARDWARE: f"look at the machine (memory, ECC counters); the batch may go again: {again}",
        Cause.UNDECIDED: f"look at the samples: {look}",
    }[found.diagnosis.cause]


def _after_bad_data(found: Replay, look: str, again: str) -> str:
    """All of the blamed samples are left out, else the batch would be refused again."""
    blamed = found.blamed.samples
    if not blamed:
        return f"no sample is bad alone, so look at them together, with dropout and batch statistics in mind: {look}"
    if len(blamed) >= sum(letter.sample_count or len(letter.sample_ids) for letter in found.letters):
        return f"all of its samples are bad: leave it dead, and look at its sources: {look}"
    return f"mend or leave out what is bad, then: {again}{''.join(f' --without {sample}' for sample in blamed)}"
