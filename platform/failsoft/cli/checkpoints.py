"""``failsoft ckpt``: the checkpoints of a run, here or on a remote store, listed, verified, shown, compared, pruned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from failsoft.artifacts.home import Home
from failsoft.cli import checkpoint_tables as tables
from failsoft.cli.app import HomeOption, app, console
from failsoft.cli.completion import complete_run
from failsoft.cli.said import JsonOption, answer, print_json, progress
from failsoft.errors import ArtifactMissingError
from failsoft.health.clock import SystemClock

if TYPE_CHECKING:
    from failsoft.artifacts.store import Artifact, ArtifactStore

ckpt = typer.Typer(help="Look at the checkpoints of a run, and remove what no rule keeps.", no_args_is_help=True)
app.add_typer(ckpt, name="ckpt")

RunArgument = Annotated[
    str,
    typer.Argument(
        help="Name of the run, or the address of its copies, as in s3://bucket/prefix/RUN.", autocompletion=complete_run
    ),
]
_WHICH = "Name or position of a checkpoint, or newest."


def _shelf(run: str, home: Home) -> ArtifactStore:
    store = home.checkpoints(run, SystemClock())
    if not store.root.is_dir():
        runs = sorted(path.parent.name for path in home.runs.glob("*/checkpoints")) if home.runs.is_dir() else []
        known = f"there: {', '.join(runs)}" if runs else "start one with: failsoft train"
        raise ArtifactMissingError(f"run {run!r} has no checkpoints in {store.root}; {known}")
    return store


@contextmanager
def _opened(run: str, home: Home, *which: str) -> Iterator[list[Artifact]]:
    """Where the run is an address, copies of them are fetched aside for the time of the block."""
    from failsoft.training.checkpoints.inspection import find

    if "://" not in run:
        store = _shelf(run, home)
        yield [find(store, one) for one in which]
        return
    from failsoft.training.checkpoints.remote_inspection import brought_aside, remote_checkpoints

    with brought_aside(remote_checkpoints(run), SystemClock(), which) as artifacts:
        yield artifacts


@ckpt.command()
def ls(run: RunArgument, json_: JsonOption = False, home: HomeOption = None) -> None:
    """List checkpoints, oldest first by their own position, and where each is safe; bytes are not read (see verify)."""
    from failsoft.training.checkpoints.inspection import ordered
    from failsoft.training.checkpoints.judged import judged
    from failsoft.training.checkpoints.remote_inspection import both_places, row_of
    from failsoft.training.checkpoints.remote_note import noted_remote

    if "://" in run:
        places = both_places((), run)
    else:
        store = _shelf(run, Home.find(home))
        places = both_places(ordered(store), noted_remote(store.root), judged(store.root))
    if json_:
        print_json([row_of(one) for one in places.seen])
    else:
        console.print(tables.listing(run, places))
    if places.unreadable is not None:
        progress.print(f"[red]only what is here:[/red] {places.unreadable}", soft_wrap=True)


@ckpt.command()
def verify(run: RunArgument, json_: JsonOption = False, home: HomeOption = None) -> None:
    """Read every byte of every checkpoint and compare it with its digest. Exit code 2 when one is damaged."""
    from failsoft.training.checkpoints.inspection import verify_all

    if "://" in run:
        from failsoft.training.checkpoints.remote_inspection import remote_checkpoints, verify_remote

        findings = verify_remote(remote_checkpoints(run))
    else:
        findings = verify_all(_shelf(run, Home.find(home)))
    damaged = [finding for finding in findings if finding.damage is not None]
    if json_:
        print_json([{"name": finding.name, "damage": finding.damage} for finding in findings])
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
    from failsoft.training.checkpoints.inspection import described

    with _opened(run, Home.find(home), which) as (artifact,):
        told = described(artifact)
    if json_:
        print_json(told)
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
    from failsoft.training.checkpoints.inspection import difference

    with _opened(run, Home.find(home), a, b) as (before, after):
        found = difference(before, after)
    if json_:
        print_json(tables.difference_as_json(found))
    else:
        for table in tables.difference(found):
            console.print(table)


@ckpt.command()
def fetch(
    url: Annotated[str, typer.Argument(help="Address of a run's copies, as in s3://bucket/prefix/RUN.")],
    run: Annotated[str, typer.Option(help="Name of the run here that gets it.")],
    which: Annotated[str, typer.Argument(help=_WHICH)] = "newest",
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Bring a copy from a remote store into a run's folder, verified; failsoft train --remote does so by itself."""
    from failsoft.training.checkpoints.remote_inspection import bring, remote_checkpoints

    store = Home.find(home).checkpoints(run, SystemClock())
    artifact = bring(remote_checkpoints(url), which, store)
    told = {"name": artifact.name, "path": artifact.path}
    answer(json_, told, f"{artifact.name} is whole, in {artifact.path}")


@ckpt.command()
def prune(
    run: RunArgument,
    last: Annotated[int, typer.Option(min=1, help="Keep the newest so many.")] = 3,
    best: Annotated[int, typer.Option(min=0, help="Also keep the so many best by --metric.")] = 0,
    metric: Annotated[str, typer.Option(help="What --best judges by; smaller is better.")] = "loss",
    larger: Annotated[bool, typer.Option("--larger", help="Larger is better for --metric.")] = False,
    every_hours: Annotated[float, typer.Option(min=0.0, help="Also keep one for each so many hours.")] = 0.0,
    unfinished: Annotated[
        bool,
        typer.Option("--unfinished", help="At an address: also what nobody finished; only while no run copies there."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it they are only named.")] = False,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Name the checkpoints that no rule keeps, and remove them with --yes. The newest healthy one always stays."""
    from failsoft.training.checkpoints.retention import Best, Every, Last

    rules: list[Any] = [Last(count=last)]
    rules += [Best(metric=metric, count=best, larger_is_better=larger)] if best else []
    rules += [Every(hours=every_hours)] if every_hours else []
    if "://" in run:
        from failsoft.training.checkpoints.remote_inspection import prune_remote, remote_checkpoints

        going, stays = prune_remote(remote_checkpoints(run), rules, unfinished=unfinished, done=yes)
    else:
        going, stays = _prune_here(_shelf(run, Home.find(home)), rules, done=yes)
    if json_:
        print_json({"removed" if yes else "would_remove": going, "stay": len(stays)})
    else:
        console.print(tables.pruning(stays, going, done=yes))


def _prune_here(store: ArtifactStore, rules: list[Any], *, done: bool) -> tuple[list[str], list[str]]:
    from failsoft.training.checkpoints.inspection import ordered
    from failsoft.training.checkpoints.judged import judged
    from failsoft.training.checkpoints.retention import Shelved, removable

    there, later = ordered(store), judged(store.root)
    going = removable([Shelved.of(one.name, one.manifest, later) for one in there], rules)
    for name in going if done else ():
        store.remove(name)
    return going, [one.name for one in there if one.name not in going]
