"""The page of an incident: one file that stands alone, readable in the dark and on a phone; no script, no request."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

from failsoft.health.plain_text import plain
from failsoft.incidents.answers import Totals
from failsoft.incidents.picture import draw
from failsoft.incidents.story import Story, clock

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } .say { font-size: 1.15rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: left; padding: .3rem .9rem; border-bottom: 1px solid #8884; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; height: auto; background: #fff; } code { font-family: ui-monospace, Menlo, Consolas, monospace; }
"""
_META = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
_MOST_EVENTS = 400


def page(story: Story) -> str:
    """The whole HTML; everything that callers or models wrote is escaped."""
    title = f"failsoft: {story.incident.name}"
    image = base64.b64encode(draw(story)).decode("ascii")
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="say">{_shown(story.headline())}</p>',
        f'<p><img alt="Who answered, and how sure the models were, over time" src="data:image/png;base64,{image}"></p>',
        "<h2>What to do next</h2>",
        "<ul>" + "".join(f"<li><code>{_shown(step)}</code></li>" for step in story.next_steps()) + "</ul>",
        _answers(story),
        _specimens(story),
        _timeline(story),
    ]
    head = f"{_META}<title>{escape(title)}</title>"
    body = "".join(parts)
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
    rows.append(["models' answers that were sure (0.9)", *(_share(phase.sure) for phase in phases.values())])
    rows.append(["slowest", *(f"{phase.slowest_ms:,.0f} ms" if phase.answers else "–" for phase in phases.values())])
    return _table("Answers", ["", *phases], rows)


def _specimens(story: Story) -> str:
    found = story.specimens()
    if not found:
        return ""
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
        f"Some of the requests that went wrong ({kept})", ["about", "", "request", "said"], rows, numbers=False
    )


def _timeline(story: Story) -> str:
    events = story.incident.events[:_MOST_EVENTS]
    rows = [[clock(event.at_s), event.kind, event.subject, event.why] for event in events]
    left_out = len(story.incident.events) - len(events)
    more = f", the first {_MOST_EVENTS} of {len(story.incident.events)}" if left_out else ""
    return _table(f"What happened, in order{more}", ["when", "what", "who", "why"], rows, numbers=False)


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    kind = ' class="n"' if numbers else ""
    body = "".join(
        "<tr>" + "".join(f"<td{kind if place else ''}>{_shown(cell)}</td>" for place, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<h2>{escape(title)}</h2><div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _part(phase: Totals, count: int) -> str:
    return f"{count:,} ({count / phase.answers:.1%})" if phase.answers else "–"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _shown(text: str) -> str:
    return escape(plain(text))
