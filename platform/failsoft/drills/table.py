"""The matrix on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from failsoft.drills.matrix import Matrix
from failsoft.drills.outcome import Outcome

_TONES = {"survived": "green", "lost": "bold red", "undecided": "bold yellow", "not tried": "dim"}


def print_matrix(matrix: Matrix, console: Console) -> None:
    """The table, what was tried together, what to do, and what it does not say."""
    title = f"{matrix.side} under drill: {matrix.subject}"
    console.print(f"[bold]{escape(title)}[/bold]\n{escape(matrix.reference.why)}", highlight=False)
    if matrix.alone:
        console.print(_table(matrix.alone))
    if matrix.together:
        console.print(_table(matrix.together))
    for one in matrix.shrunk:
        smallest = " and ".join(str(fault) for fault in one.smallest)
        console.print(f"smallest failing part of {len(one.faults)}: {escape(smallest)} ({one.trials} trials)")
    for line in mends(matrix):
        console.print(escape(line), highlight=False, soft_wrap=True)
    tone = "green" if matrix.passed else "red"
    console.print(f"[{tone}]{escape(matrix.headline())}[/{tone}]", highlight=False)
    for note in (*matrix.notes, matrix.device):
        console.print(f"[dim]{escape(note)}[/dim]", highlight=False)


def mends(matrix: Matrix) -> list[str]:
    """What to do about what did not survive, each thing once."""
    found: dict[str, list[str]] = {}
    for outcome in matrix.outcomes:
        if outcome.bad and outcome.mend:
            found.setdefault(outcome.mend, []).append(" and ".join(str(fault.kind) for fault in outcome.faults))
    lines = [f"{', '.join(dict.fromkeys(kinds))}: {mend}" for mend, kinds in found.items()]
    return [*lines, f"next: {matrix.reference.mend}"] if matrix.reference.mend else lines


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table("fault", "phase", "verdict", "lost", "again", "s", "what was seen, and why", box=None, padding=(0, 1))
    for outcome in outcomes:
        table.add_row(*_row(outcome), style="dim" if outcome.skipped else None)
    return table


def _row(outcome: Outcome) -> tuple[str, ...]:
    tone = _TONES[outcome.word]
    seen = f"\n[dim]{escape(outcome.seen[0][:110])}[/dim]" if outcome.seen else ""
    tried = not outcome.skipped
    return (
        "\n".join(fault.kind for fault in outcome.faults),
        "\n".join(fault.phase for fault in outcome.faults),
        f"[{tone}]{outcome.word}[/{tone}]",
        str(outcome.lost + outcome.repeated + outcome.torn + outcome.left) if tried else "",
        str(outcome.again) if outcome.again else "",
        f"{outcome.seconds:.1f}" if tried else "",
        escape(outcome.why) + seen,
    )
