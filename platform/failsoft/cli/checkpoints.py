"""``failsoft ckpt``: the checkpoints of a run, listed, verified, shown, compared and pruned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from failsoft.artifacts.home import Home
from failsoft.cli import checkpoint_tables as tables
from failsoft.cli.app import HomeOption, app, console
from failsoft.errors import ArtifactMissingError
from failsoft.health.clock import SystemClock

if TYPE_CHECKING:
    from failsoft.artifacts.store import ArtifactStore

ckpt = typer.Typer(help="Look at the checkpoints of a run, and remove what no rule keeps.", no_args_is_help=True)
app.add_typer(ckpt, name="ckpt")

RunArgument = Annotated[str, typer.Argument(help="Name of the run, as in: failsoft train --run NAME.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_WHICH = "Name or position of a checkpoint, or newest."


def _shelf(run: str, home: Home) -> ArtifactStore:
    store = home.checkpoints(run, SystemClock())
    if not store.root.is_dir():
        runs = sorted(path.parent.name for path in home.runs.glob("*/checkpoints")) if home.runs.is_dir() else []
        known = f"there: {', '.join(runs)}" if runs else "start one with: failsoft train"
        raise ArtifactMissingError(f"run {run!r} has no checkpoints in {store.root}; {known}")
    return store


@ckpt.command()
def ls(run: RunArgument, json_: JsonOption = False, home: HomeOption = None) -> None:
    """List checkpoints, oldest first by their own position; bytes are not read (see verify)."""
    from failsoft.training.checkpoints.inspection import ordered, size_bytes

    there = ordered(_shelf(run, Home.find(home)))
    if json_:
        rows = [
            {"name": one.name, "created_at_s": one.manifest.created_at_s, "bytes": size_bytes(one)}
            | dict(one.manifest.meta)
            for one in there
        ]
        console.print_json(data=rows)
    else:
        console.print(tables.listing(run, there))


@ckpt.command()
def verify(run: RunArgument, json_: JsonOption = False, home: HomeOption = None) -> None:
    """Read every byte of every checkpoint and compare it with its digest. Exit code 2 when one is damaged."""
    from failsoft.training.checkpoints.inspection import verify_all

    findings = verify_all(_shelf(run, Home.find(home)))
    damaged = [finding for finding in findings if finding.damage is not None]
    if json_:
        console.print_json(data=[{"name": finding.name, "damage": finding.damage} for finding in findings])
    else:
        console.print(tables.findings(findings))
    if damaged:
        raise typer.Exit(code=2)


@ckpt.command()
def show(
    run: RunArgument,
    which: Annotated[str, typer.Argument(help=_WHICH)] = "newest",
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Say what one checkpoint holds: where the run stood, its parts and sizes, what made it."""
    from failsoft.training.checkpoints.inspection import described, find

    told = described(find(_shelf(run, Home.find(home)), which))
    if json_:
        console.print_json(data=told)
    else:
        for table in tables.description(told):
            console.print(table)


@ckpt.command()
def diff(
    run: RunArgument,
    a: Annotated[str, typer.Argument(help=_WHICH)],
    b: Annotated[str, typer.Argument(help=_WHICH)],
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Say what two checkpoints differ in: tensors on one side only, shapes, how far each part moved, small values."""
    from failsoft.training.checkpoints.inspection import difference, find

    store = _shelf(run, Home.find(home))
    found = difference(find(store, a), find(store, b))
    if json_:
        console.print_json(data=tables.difference_as_json(found))
    else:
        for table in tables.difference(found):
            console.print(table)


@ckpt.command()
def prune(
    run: RunArgument,
    last: Annotated[int, typer.Option(min=1, help="Keep the newest so many.")] = 3,
    best: Annotated[int, typer.Option(min=0, help="Also keep the so many best by --metric.")] = 0,
    metric: Annotated[str, typer.Option(help="What --best judges by; smaller is better.")] = "loss",
    larger: Annotated[bool, typer.Option("--larger", help="Larger is better for --metric.")] = False,
    every_hours: Annotated[float, typer.Option(min=0.0, help="Also keep one for each so many hours.")] = 0.0,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it they are only named.")] = False,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Name the checkpoints that no rule keeps, and remove them with --yes. The newest healthy one always stays."""
    from failsoft.training.checkpoints.retention import Best, Every, Last, Shelved, removable

    store = _shelf(run, Home.find(home))
    rules: list[Any] = [Last(count=last)]
    rules += [Best(metric=metric, count=best, larger_is_better=larger)] if best else []
    rules += [Every(hours=every_hours)] if every_hours else []
    there = store.listing()
    going = removable([Shelved.of(one.name, one.manifest) for one in there], rules)
    for name in going if yes else ():
        store.remove(name)
    if json_:
        console.print_json(data={"removed" if yes else "would_remove": going, "stay": len(there) - len(going)})
    else:
        console.print(tables.pruning(there, going, done=yes))
