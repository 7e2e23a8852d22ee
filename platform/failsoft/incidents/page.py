"""The page of an incident: one file that stands alone, readable in the dark and on a phone; no script, no request."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

from failsoft.health.ledger import Event
from failsoft.health.plain_text import plain
from failsoft.incidents.answers import Totals
from failsoft.incidents.picture import draw
from failsoft.incidents.story import Story, clock

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } .say { font-size: 1.15rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th[scope=row] { font-weight: inherit; }
th, td { text-align: left; padding: .3rem .9rem; border-bottom: 1px solid #8884; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; height: auto; background: #fff; } code { font-family: ui-monospace, Menlo, Consolas, monospace; }
"""
_META = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
_MOST_EVENTS = 200
_NOTHING_DONE = "Nothing: no stage moved, since it says nothing about the model; a fallback answered in its place."
_NO_SPECIMEN = "None was kept: either the settings keep none (per_span: 0), or no span of the history reaches into it."
_ONLY_SHAPES = (
    "Of these requests only the shape was kept, so they can't be tried again. With keep_texts: true in the app's "
    "arguments some are kept as written, without what the settings hide, and failsoft replay tries them on any release."
)


def page(story: Story) -> str:
    """The whole HTML; everything that callers or models wrote is escaped."""
    title = f"failsoft: {story.incident.name}"
    image = base64.b64encode(draw(story)).decode("ascii")
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="say">{_shown(story.headline())}</p>',
        f'<p><img alt="Who answered, and how sure the models were, over time" src="data:image/png;base64,{image}"></p>',
        _next(story),
        _events("What was seen", story.seen(), nothing="Nothing is in the ledger but what was done."),
        _events("What was done, and why", story.done(), nothing=_NOTHING_DONE),
        _answers(story),
        _specimens(story),
        _reproduction(story),
    ]
    head = f"{_META}<title>{escape(title)}</title>"
    body = f"<main>{''.join(parts)}</main>"
    return f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{body}</body></html>'


def _answers(story: Story) -> str:
    phases = story.phases()
    sources = sorted({source for phase in phases.values() for source in phase.sources})
    whys = sorted({why for phase in phases.values() for why in phase.whys} - {"none"})
    rows = [["answers", *(f"{phase.answers:,}" for phase in phases.values())]]
    rows += [
        [f"by {source}", *(_part(phase, phase.sources.get(source, 0)) for phase in phases.values())]
        for source in sources
    ]
    rows += [
        [f"not the model: {why}", *(_part(phase, phase.whys.get(why, 0)) for phase in phases.values())] for why in whys
    ]
    rows.append(["models' mean confidence", *(_mean(phase) for phase in phases.values())])
    rows.append(["models' answers that were sure (0.9)", *(_share(phase.sure) for phase in phases.values())])
    rows.append(["slowest", *(f"{phase.slowest_ms:,.0f} ms" if phase.answers else "–" for phase in phases.values())])
    return _table("Answers by source, and their quality", ["", *phases], rows)


def _specimens(story: Story) -> str:
    found = story.specimens()
    if not found:
        return f"<h2>Some of the requests that went wrong</h2><p>{_NO_SPECIMEN}</p>"
    rows = [
        [clock(at_s), one.get("why", ""), one.get("text") or one.get("shape", ""), one.get("said", "")]
        for at_s, one in found
    ]
    kept = (
        "as written, what the settings hide left out"
        if any("text" in one for _at, one in found)
        else "only their shape"
    )
    return _table(
        f"Some of the requests that went wrong ({kept})", ["about", "why", "request", "said"], rows, numbers=False
    )


def _next(story: Story) -> str:
    account = story.account()
    steps = "".join(f"<li><code>{_shown(step)}</code></li>" for step in story.next_steps())
    place = f"/console/runbook#{account.section.lower()}"
    more = f"Runbook: docs/runbook.md, section {account.section}; of any gateway: {place}"
    press = "It is over." if story.incident.is_over else _shown(account.press)
    return f"<h2>What to do next</h2><p>{press}</p><ul>{steps}</ul><p>{_shown(more)}</p>"


def _events(title: str, events: Sequence[Event], *, nothing: str) -> str:
    if not events:
        return f"<h2>{escape(title)}</h2><p>{nothing}</p>"
    shown = events[:_MOST_EVENTS]
    rows = [[clock(event.at_s), event.kind, event.subject, event.why] for event in shown]
    more = f", the first {_MOST_EVENTS} of {len(events)}" if len(shown) < len(events) else ""
    return _table(title + more, ["when", "what", "who", "why"], rows, numbers=False)


def _reproduction(story: Story) -> str:
    """What is at hand to see it again: which release, under which plans, with which requests."""
    one, found = story.incident, story.specimens()
    releases = sorted({str(event.data["release"]) for event in one.events if event.data.get("release")})
    epochs = sorted({event.count("epoch") for event in one.events if event.count("epoch")})
    texts = sum("text" in specimen for _at, specimen in found)
    rows = [
        ["release", ", ".join(releases) or ", ".join(sorted({span.release for span in story.spans})) or "not known"],
        ["plans (epochs)", f"{epochs[0]} to {epochs[-1]}" if epochs else "none of its own"],
        ["requests kept", f"{len(found)}, of them {texts} with their text"],
        ["to try them again", f"failsoft replay {one.name}" if texts else _ONLY_SHAPES],
    ]
    return _table("Reproduction", ["", ""], rows, numbers=False)


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    """The first column names its row where no column has a name of its own."""
    heads = "".join(f'<th scope="col">{escape(column)}</th>' if column else "<td></td>" for column in columns)
    head = f"<tr>{heads}</tr>" if any(columns) else ""
    kind = ' class="n"' if numbers else ""
    body = "".join(f"<tr>{_first(row[0], columns)}{_rest(row[1:], kind)}</tr>" for row in rows)
    place = f'<div class="wide" tabindex="0" role="group" aria-label="{escape(title)}">'
    return f"<h2>{escape(title)}</h2>{place}<table>{head}{body}</table></div>"


def _first(cell: str, columns: Sequence[str]) -> str:
    return f"<td>{_shown(cell)}</td>" if columns[0] else f'<th scope="row">{_shown(cell)}</th>'


def _rest(cells: Sequence[str], kind: str) -> str:
    return "".join(f"<td{kind}>{_shown(cell)}</td>" for cell in cells)


def _part(phase: Totals, count: int) -> str:
    return f"{count:,} ({count / phase.answers:.1%})" if phase.answers else "–"


def _mean(phase: Totals) -> str:
    counted = sum(phase.confidence)
    if not counted:
        return "–"
    return f"{sum(count * (tenth + 0.5) / 10 for tenth, count in enumerate(phase.confidence)) / counted:.2f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _shown(text: str) -> str:
    return escape(plain(text))
