"""``failsoft purge``: removes what is kept about requests and runs. It parses, wires and prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, app, console
from failsoft.cli.said import JsonOption, print_json
from failsoft.durations import parse_duration_s
from failsoft.errors import ConfigError
from failsoft.health.clock import Clock, SystemClock
from failsoft.purging.order import Order, What, of_persons, older_than, past_its_time

if TYPE_CHECKING:
    from failsoft.purging.purge import Purged

LEFT_OVER = 2
"""Exit code when a copy of a removed text lies elsewhere in the home."""


@app.command()
def purge(
    older: Annotated[
        str | None, typer.Option("--older-than", help="Like 30d; without it, and without a person, retention.toml.")
    ] = None,
    what: Annotated[
        list[What] | None, typer.Option("--what", help="Repeatable. [dim]Without it all that applies.[/dim]")
    ] = None,
    request_id: Annotated[
        list[str] | None, typer.Option("--request-id", help="What this request left, at any age. Repeatable.")
    ] = None,
    caller: Annotated[
        list[str] | None, typer.Option("--caller", help="What this caller left: the key in X-Caller-Id. Repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count, also with --yes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove; without it everything is only counted.")] = False,
    why: Annotated[str, typer.Option("--why", help="Reason, kept in the ledger; write nobody's data into it.")] = "",
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Remove kept texts, requests that went wrong, counts, events, dead letters, stacks or pages: by age or by person.

    Apps and runs go on meanwhile. Checkpoints and releases are never touched, nor the letters of a run that a process
    drives. Exit code 2: a copy of a removed text lies elsewhere in the home, and is named.
    """
    from failsoft.purging.purge import Purge

    place, clock = Home.find(home), SystemClock()
    order = _order(place, clock, older, what or [], request_id or [], caller or [])
    only_count = dry_run or not yes
    task = Purge(home=place, order=order, clock=clock, dry_run=only_count)
    found = task.carry_out(why=why)
    copies = [] if only_count else [str(path) for path in task.still_there()]
    if json_:
        print_json({"dry_run": only_count, "removed": found.to_json(), "still_in": copies})
    else:
        _say(found, copies, only_count=only_count)
    if copies:
        raise typer.Exit(LEFT_OVER)


def _order(
    place: Home,
    clock: Clock,
    older: str | None,
    what: Sequence[What],
    request_ids: Sequence[str],
    callers: Sequence[str],
) -> Order:
    from failsoft.health.retention import read_retention

    if request_ids or callers:
        if older is not None:
            raise ConfigError("--older-than and a person are two questions; ask for one of them at a time")
        return of_persons(what, request_ids=request_ids, callers=callers)
    if older is None:
        return past_its_time(read_retention(place.root).cut(clock.wall_s()), what)
    return older_than(what, clock.wall_s() - parse_duration_s(older))


def _say(found: Purged, copies: Sequence[str], *, only_count: bool) -> None:
    would = "would be removed" if only_count else "removed"
    for name, count in found.to_json().items():
        if count and name != "runs_in_use":
            console.print(f"{name.replace('_', ' ')}: {count} {would}", markup=False, highlight=False)
    if found.is_nothing:
        console.print(f"nothing {'would be' if only_count else 'was'} removed: there is nothing of the kind")
    for run in found.busy:
        words = f"run {run} is being trained, its letters and stacks stay; when it has left (failsoft preempt {run}),"
        console.print(f"{words} ask again", markup=False, highlight=False, soft_wrap=True)
    for path in copies:
        console.print(
            f"the same words are still in {path}; look at it, and remove it if it is a copy",
            markup=False,
            soft_wrap=True,
        )
    if only_count and not found.is_nothing:
        console.print("next: the same with --yes")
