"""``failsoft incidents``: which there were; their reports are ``failsoft report INCIDENT``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, app, console
from failsoft.cli.said import JsonOption, print_json, progress
from failsoft.errors import ArtifactMissingError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import each_event
from failsoft.health.plain_text import plain

if TYPE_CHECKING:
    from failsoft.incidents.finding import Incident
    from failsoft.incidents.story import Story

INCIDENT = "incident-"
"""How names of incidents begin; ``incident-last`` is the last one."""
_WIDEST_S = 2 * 600.0


@app.command()
def incidents(json_: JsonOption = False, home: HomeOption = None) -> None:
    """List the incidents of serving: falls of a model, waves of overload and of bad input; why, how long, how many."""
    from failsoft.incidents.finding import incidents_of
    from failsoft.incidents.story import clock

    place, now_s = Home.find(home), SystemClock().wall_s()
    stories = _stories(place, incidents_of(each_event(place.ledger), now_s=now_s), now_s)
    if json_:
        print_json([_as_json(story) for story in stories])
        return
    table = Table("incident", "began", "took", "release", "stage", "replaced", "why")
    for story in stories:
        one, during = story.incident, story.phases()["during"]
        took = f"{story.lasted_s:.0f} s" if one.is_over else "going on"
        cells = (
            one.name,
            clock(one.began_s),
            took,
            one.release or "–",
            one.stage or "–",
            f"{story.hit():,} of {during.answers:,}",
        )
        table.add_row(*(escape(plain(cell)) for cell in (*cells, one.why[:100])))
    console.print(table if stories else escape(f"no incident in {place.ledger}"))
    if stories:
        console.print(f"see one with: failsoft report {stories[-1].incident.name}")


def write_incident_report(place: Home, name: str, into: Path | None) -> list[Path]:
    """Write the page and the picture of an incident; returns their paths.

    Raises:
        ArtifactMissingError: there is no such incident.
    """
    from failsoft.artifacts.store import write_durably
    from failsoft.incidents.page import page
    from failsoft.incidents.picture import draw

    story = story_of(place, name)
    one = story.incident
    folder = into or place.root / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{one.name}.html", folder / f"{one.name}.png"]
    write_durably(paths[0], page(story).encode("utf-8", "backslashreplace"))
    write_durably(paths[1], draw(story))
    progress.print(escape(plain(story.headline())), highlight=False, soft_wrap=True)
    return paths


def story_of(place: Home, name: str) -> Story:
    """What is known of the incident of that name.

    Raises:
        ArtifactMissingError: there is no such incident.
    """
    from failsoft.incidents.finding import incidents_of, named

    now_s = SystemClock().wall_s()
    found = incidents_of(each_event(place.ledger), now_s=now_s)
    one = named(found, name)
    if one is None:
        there = ", ".join(there.name for there in found[-5:]) or "none"
        raise ArtifactMissingError(
            f"there is no {name!r} in {place.ledger}; the last: {there}; see: failsoft incidents"
        )
    return _stories(place, [one], now_s)[0]


def _stories(place: Home, those: Sequence[Incident], now_s: float) -> list[Story]:
    from failsoft.incidents.answers import spans_of_each
    from failsoft.incidents.story import tell
    from failsoft.serving.watching.answer_history import FILE_NAME

    ends = [now_s if one.ended_s is None else one.ended_s for one in those]
    times = [(one.began_s - _WIDEST_S, end_s + _WIDEST_S) for one, end_s in zip(those, ends, strict=True)]
    found = spans_of_each(place.serving / FILE_NAME, times)
    return [tell(one, spans, now_s=now_s) for one, spans in zip(those, found, strict=True)]


def _as_json(story: Story) -> dict[str, Any]:
    one = story.incident
    return {
        "name": one.name,
        "kind": str(one.kind),
        "what": story.account().what,
        "hit": story.hit(),
        "began_s": one.began_s,
        "ended_s": one.ended_s,
        "release": one.release,
        "stage": one.stage,
        "relapses": one.relapses,
        "gateways_tripped": list(one.gateways),
        "why": one.why,
        "answers": {
            phase: {"answers": there.answers, "replaced": there.replaced, "by_source": dict(there.sources)}
            for phase, there in story.phases().items()
        },
    }
