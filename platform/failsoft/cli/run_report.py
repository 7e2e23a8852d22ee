"""The report of a run: one page and one picture that stand alone, for people who were not there."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.terminal_theme import TerminalTheme

from failsoft.artifacts.store import write_durably
from failsoft.cli.goodput_picture import picture_of_goodput
from failsoft.cli.run_tables import age, detail, seconds
from failsoft.health.ledger import Event
from failsoft.training.accounting.whereabouts import Whereabouts

PAGE, PICTURE = "report.html", "report.png"
_WIDTH = 150
_SHOWN_EVENTS = 400
_THEME = TerminalTheme(
    (255, 255, 255),
    (31, 35, 40),
    [
        (31, 35, 40),
        (179, 32, 42),
        (47, 125, 79),
        (154, 103, 0),
        (31, 59, 99),
        (122, 94, 168),
        (31, 111, 124),
        (87, 96, 106),
    ],
)
_SHELL = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ margin: 2rem auto; max-width: 100rem; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif;
  color: #1f2328; background: #fff }}
pre {{ overflow-x: auto; font: 0.85rem/1.35 ui-monospace, Menlo, Consolas, monospace }}
img {{ max-width: 100%; height: auto }}
.say {{ font-size: 1.15rem }}
</style></head><body>
<h1>{title}</h1>
<p class="say">{headline}</p>
{picture}
{tables}
<h2>What happened, in order</h2>
{events}
</body></html>
"""


def write_run_report(
    look: Whereabouts, events: Iterable[Event], *, into: Path, now_s: float
) -> tuple[Path, Path | None]:
    """Write the page and the picture; each becomes visible whole.

    Args:
        look: at the run.
        events: of this run, in order.
        into: folder to write into; made when absent.
        now_s: wall time.

    Returns:
        The page, and the picture; None for a run that has left no time to draw.
    """
    into.mkdir(parents=True, exist_ok=True)
    drawn = picture_of_goodput(look.account) if look.account.wall_micros else None
    mine = list(events)
    page = _SHELL.format(
        title=html.escape(f"Run {look.run}"),
        headline=html.escape(headline(look)),
        picture="" if drawn is None else _embedded(drawn, look),
        tables=_as_html(detail(look, (), now_s=now_s)),
        events=_as_html([_history(mine, now_s=now_s)]),
    )
    write_durably(into / PAGE, page.encode("utf-8", "backslashreplace"))
    if drawn is None:
        return into / PAGE, None
    write_durably(into / PICTURE, drawn)
    return into / PAGE, into / PICTURE


def headline(look: Whereabouts) -> str:
    """What became of the run, in two sentences."""
    account, summary = look.account, look.summary
    ettr = "no time on record" if account.ettr is None else f"{account.ettr:.1%} of it productive"
    return (
        f"{look.state.capitalize()}: {look.position} of {look.total or 'an unknown number of'} batches in "
        f"{seconds(account.wall_s)}, {ettr}. {look.restarts} restarts ({summary.batches_repeated} batches worked on "
        f"again), {look.refused} batches refused, {look.rollbacks} rollbacks ({summary.steps_undone} steps undone)."
    )


def _embedded(drawn: bytes, look: Whereabouts) -> str:
    said = html.escape(f"Where the time of run {look.run} went", quote=True)
    return f'<img alt="{said}" src="data:image/png;base64,{base64.b64encode(drawn).decode()}">'


def _history(events: list[Event], *, now_s: float) -> Table:
    """The newest events, the oldest of them first; how many came before is said."""
    shown = events[-_SHOWN_EVENTS:]
    before = len(events) - len(shown)
    table = Table("ago", "event", "why", title=f"{before} earlier events are in the ledger only" if before else None)
    for event in shown:
        table.add_row(age(now_s - event.at_s, bare=True), escape(event.kind), escape(event.why[:300]))
    return table


def _as_html(tables: Iterable[Table]) -> str:
    console = Console(record=True, file=io.StringIO(), width=_WIDTH, force_terminal=True, legacy_windows=False)
    for table in tables:
        console.print(table)
        console.print()
    return console.export_html(theme=_THEME, inline_styles=True, code_format="<pre>{code}</pre>")
