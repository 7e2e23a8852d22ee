"""``failsoft replay``: the requests of an incident, tried again on any release. It parses, wires and prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, app, console
from failsoft.cli.completion import complete_incident, complete_release
from failsoft.cli.incidents import story_of
from failsoft.cli.said import print_json
from failsoft.errors import ArtifactMissingError, ConfigError
from failsoft.health.clock import SystemClock
from failsoft.health.plain_text import plain

if TYPE_CHECKING:
    from serve_apps.replay import Replayed


@app.command()
def replay(
    incident: Annotated[
        str | None,
        typer.Argument(
            help="Its name; incident-last is the last one. Without: see --text.", autocompletion=complete_incident
        ),
    ] = None,
    release: Annotated[
        str | None,
        typer.Option("--release", help="Of which; the newest one without it.", autocompletion=complete_release),
    ] = None,
    text: Annotated[list[str] | None, typer.Option("--text", help="A text of your own; as often as you like.")] = None,
    own: Annotated[str | None, typer.Option("--app", help="Own app, as package.module:config.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    home: HomeOption = None,
) -> None:
    """Try the requests of an incident again on any release, in this process, and show what each net says of them."""
    place = Home.find(home)
    asked: list[Any] = [*(_kept(place, incident) if incident else ()), *(text or ())]
    if not asked:
        raise ConfigError("nothing to try; name an incident (failsoft incidents), or give a text with --text")
    from failsoft.artifacts.bundle import Bundle
    from failsoft.serving.task import app_named

    sys.path.insert(0, str(Path.cwd()))  # where an own app lies
    from serve_apps.intent_ner import SPEC
    from serve_apps.replay import replay as tried

    clock = SystemClock()
    releases = place.releases(clock)
    artifact = releases.open(release) if release else releases.newest()
    if artifact is None:
        raise ArtifactMissingError(f"there is no release in {releases.root}; make one with: failsoft train")
    found = tried(Bundle.of(artifact), asked, clock, SPEC if own is None else app_named(own))
    if json_:
        print_json((asdict(one) for one in found), lines=True)
    else:
        console.print(_table(found, artifact.name))


def _table(found: Sequence[Replayed], release: str) -> Table:
    table = Table(
        "request", "reads as", "sanitizer", "answer", "sure", "why not the model", title=f"on {escape(release)}"
    )
    for one in found:
        repairs = ", ".join(f"{what} {count}" for what, count in one.repairs.items())
        sure = "–" if one.confidence is None else f"{one.confidence:.2f}"
        said = json.dumps(one.answer, ensure_ascii=False)[:80]
        cells = (str(one.asked), one.reads_as, f"{one.verdict} {repairs}", f"{one.source}: {said}", sure, one.why)
        table.add_row(*(escape(plain(cell)) for cell in cells))
    return table


def _kept(place: Home, incident: str) -> list[Any]:
    """Texts as they were asked, and instances as JSON has them."""
    kept = [one for _at, one in story_of(place, incident).specimens() if "text" in one]
    texts = [json.loads(one["instance"]) if "instance" in one else one["text"] for one in kept]
    if not texts:
        raise ArtifactMissingError(
            f"of {incident} no text was kept, only shapes; switch it on with failsoft serve --keep-texts, or with "
            "keep_texts: true in the app's arguments, or give texts with --text"
        )
    return texts
