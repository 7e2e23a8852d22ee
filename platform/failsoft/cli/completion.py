"""What a shell completes: names of runs, releases and incidents of the home, beside commands and options.

``failsoft --install-completion`` sets it up for the shell that asks. Never raises: whoever presses Tab wants no error.
"""

from __future__ import annotations

from collections.abc import Iterable

import typer

from failsoft.artifacts.home import Home, run_names
from failsoft.errors import FailsoftError


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """Runs of the home that the line names, or else of the usual one."""
    return _fitting(run_names(_home(ctx).runs), incomplete)


def complete_release(ctx: typer.Context, incomplete: str) -> list[str]:
    """Published releases."""
    folder = _home(ctx).root / "releases"
    there = folder.iterdir() if folder.is_dir() else ()
    return _fitting((path.name for path in there if (path / "manifest.json").is_file()), incomplete)


def complete_incident(ctx: typer.Context, incomplete: str) -> list[str]:
    """Incidents, the newest first."""
    from failsoft.health.ledger import each_event
    from failsoft.incidents.finding import incidents_of

    try:
        found = incidents_of(each_event(_home(ctx).ledger))
    except (FailsoftError, OSError):
        return []
    return _fitting((one.name for one in reversed(found)), incomplete, in_order=True)


def complete_run_or_incident(ctx: typer.Context, incomplete: str) -> list[str]:
    """Both, for a command that takes either."""
    return [*complete_run(ctx, incomplete), *complete_incident(ctx, incomplete)]


def _home(ctx: typer.Context) -> Home:
    return Home.find(ctx.params.get("home"))


def _fitting(names: Iterable[str], incomplete: str, *, in_order: bool = False) -> list[str]:
    fitting = [name for name in names if name.startswith(incomplete)]
    return fitting if in_order else sorted(fitting)
