"""``failsoft fetch`` and ``failsoft release send``: copies of releases and checkpoints, for empty machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from failsoft.artifacts.address import shown
from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, app, release_app
from failsoft.cli.completion import complete_release, complete_run
from failsoft.cli.said import JsonOption, answer, progress
from failsoft.errors import ArtifactMissingError, ConfigError
from failsoft.health.clock import SystemClock

if TYPE_CHECKING:
    from failsoft.artifacts.at_hand import Found
    from failsoft.artifacts.remote_store import RemoteStore

REMOTE_VARIABLE = "FAILSOFT_REMOTE"
_NEWEST = "newest"
_FromOption = Annotated[
    str | None,
    typer.Option("--from", envvar=REMOTE_VARIABLE, help="Store of copies, as in s3://bucket/prefix (train --remote)."),
]


@app.command()
def fetch(
    run: Annotated[
        str | None,
        typer.Option(help="Have this run's newest whole, healthy checkpoint here.", autocompletion=complete_run),
    ] = None,
    release: Annotated[
        str | None, typer.Option(help="Have this release here, by name or newest.", autocompletion=complete_release)
    ] = None,
    from_: _FromOption = None,
    first_start: Annotated[
        bool, typer.Option("--first-start", help="Nothing here and nothing there is fine: a run that begins.")
    ] = False,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Have the newest whole checkpoint or release in the home, verified, before anything starts; for init containers.

    What is whole here is verified and kept; what is newer at --from is fetched and verified. Exit code 1 when there is
    nothing, or nothing whole.
    """
    if (run is None) == (release is None):
        raise ConfigError("fetch wants one of --run RUN and --release NAME; as in: failsoft fetch --release newest")
    place = Home.find(home)
    found = _checkpoint(place, run, from_) if run is not None else _release(place, str(release), from_)
    if found is None and not first_start:
        where = shown(from_) if from_ else f"(no --from, no ${REMOTE_VARIABLE})"
        raise ArtifactMissingError(f"nothing to fetch for {run or release!r}: none in {place.root}, none at {where}")
    for remark in () if found is None else found.remarks:
        progress.print(f"[yellow]mind:[/yellow] {escape(remark)}", highlight=False, soft_wrap=True)
    if found is None:
        answer(json_, {"name": None, "path": None}, f"nothing is there for {run or release} yet; it begins")
        return
    how = f"fetched from {shown(from_ or '')}" if found.brought else "here already"
    told = {"name": found.artifact.name, "path": found.artifact.path, "fetched": bool(found.brought)}
    answer(json_, told, f"{found.artifact.name} is whole, {how}: {found.artifact.path}")


@release_app.command()
def send(
    name: Annotated[str, typer.Argument(help="Name of a published release.", autocompletion=complete_release)],
    to: Annotated[str, typer.Option("--to", envvar=REMOTE_VARIABLE, help="Store of copies, as in s3://bucket/prefix.")],
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Copy a release to a remote store, verified there; failsoft fetch --release brings it to an empty machine."""
    from failsoft.artifacts.at_hand import reached

    artifact = Home.find(home).releases(SystemClock()).open(name)
    remote = _releases_at(to)
    with reached(remote):
        folder = remote.put(artifact)
    where = f"{remote.place.shown}/{folder}"
    answer(json_, {"name": name, "at": where}, f"{name} is at {where}")


def _checkpoint(home: Home, run: str, url: str | None) -> Found | None:
    from failsoft.artifacts.at_hand import Sought, at_hand
    from failsoft.training.checkpoints.inspection import is_healthy, position_of
    from failsoft.training.checkpoints.remote_inspection import is_withdrawn
    from failsoft.training.checkpoints.remote_note import remote_of_run
    from failsoft.training.checkpoints.withdrawn import withdrawn

    store = home.checkpoints(run, SystemClock())
    gone = withdrawn(store.root)  # a store that was away since still has them: nobody may go on from what was undone
    sought = Sought(order=position_of, accept=lambda one: is_healthy(one) and not is_withdrawn(one, gone))
    remote = None if not url else _remote("checkpoint", remote_of_run(url, run))
    return at_hand(store, sought, remote)


def _release(home: Home, name: str, url: str | None) -> Found | None:
    from failsoft.artifacts.at_hand import Sought, at_hand

    sought = Sought(name=None if name == _NEWEST else name)
    remote = None if not url else _releases_at(url)
    return at_hand(home.releases(SystemClock()), sought, remote)


def _releases_at(url: str) -> RemoteStore:
    from failsoft.artifacts.address import below

    return _remote("release", below(url, "releases"))


def _remote(kind: str, url: str) -> RemoteStore:
    from failsoft.artifacts.remote_place import place_of
    from failsoft.artifacts.remote_store import RemoteStore

    return RemoteStore(place_of(url), kind=kind)
