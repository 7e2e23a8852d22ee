"""``failsoft events``: the ledger of both sides, looked through and followed."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, app, console
from failsoft.durations import parse_duration_s
from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Event, Side, holding, parse_event
from failsoft.health.ledger_files import Position, Tail, last_bytes
from failsoft.health.plain_text import plain
from failsoft.health.retention import DAY_S

_LOOK_EVERY_S = 0.25
_LAST = 50
_FIRST_BYTES, _STRIDE = 1 << 17, 8
_ESCAPE = b"\\"
"""Without one a line is ASCII, and says what it shows."""
_COLOURS = {Side.TRAINING: "cyan", Side.SERVING: "magenta", Side.RELEASE: "green"}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which events somebody asks for. What is None is not asked about."""

    since_s: float | None = None
    side: Side | None = None
    kind: str | None = None
    subject: str | None = None
    text: str | None = None

    def fits(self, event: Event) -> bool:
        """Whether the event is one of them; words are looked for in its line and as people read it, in any case."""
        return (
            (self.since_s is None or event.at_s >= self.since_s)
            and (self.side is None or event.side is self.side)
            and (self.kind is None or event.kind == self.kind)
            and (self.subject is None or event.subject == self.subject)
            and (self.text is None or _has(event, self.text))
        )

    def holder(self) -> Callable[[bytes], bool]:
        """Tells of a line whether it may be of one of them, without parsing it. An event's line is its ``to_line``."""
        held = holding(*(word for word in (self.side, self.kind, self.subject) if word is not None))
        if self.text is None:
            return held
        text = self.text.casefold().encode(errors="replace")
        return lambda line: held(line) and (text in line.lower() or _ESCAPE in line)

    def is_past(self, at_s: float) -> bool:
        """Whether what was written before then is too old; a day more is looked at, for clocks are set back."""
        return self.since_s is not None and at_s < self.since_s - DAY_S


@app.command()
def events(
    since: Annotated[
        str | None, typer.Option("--since", help="How long ago, like 2h, or a moment, like 2026-11-30T02:15.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    side: Annotated[Side | None, typer.Option("--side", help="Of one side only.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Of one kind only, like trip.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="About one run, release or gateway only.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="With these words anywhere in it.")] = None,
    last: Annotated[
        int | None, typer.Option("--last", min=0, help=f"At most so many. [dim]{_LAST}; all with --since[/dim]")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, as in the ledger.")] = False,
    home: HomeOption = None,
) -> None:
    """Look through the ledger: what happened, when, to whom and why, on both sides."""
    place, clock = Home.find(home), SystemClock()
    wanted = Wanted(
        since_s=None if since is None else moment_s(since, now_s=clock.wall_s()),
        side=side,
        kind=kind,
        subject=subject,
        text=text,
    )
    at_most = last if last is not None or since else _LAST
    tail, found = newest(place.ledger, wanted, at_most)
    try:
        said = _say(found, json_=json_)
        if not (said or follow or json_):
            console.print(escape(f"no such event in {place.ledger}"))
        while follow:
            _say(_new(tail, wanted), json_=json_)
            clock.sleep_s(_LOOK_EVERY_S)
    except KeyboardInterrupt:
        return
    finally:
        tail.close()


def newest(path: Path, wanted: Wanted, at_most: int | None) -> tuple[Tail, Iterable[Event]]:
    """The newest events that are wanted, oldest first, and a reader that has read all there is.

    Begins with the end of the ledger and goes back in growing strides, for it may be a year of events.

    Args:
        path: the ledger's.
        wanted: what is asked for.
        at_most: so many; None: all.
    """
    stride = _FIRST_BYTES
    while True:
        begin = last_bytes(path, stride)
        tail = Tail(path, after=begin)
        if begin == Position():
            found = _new(tail, wanted)
            return tail, found if at_most is None else deque(found, maxlen=at_most)
        lines = _lines(tail)
        first = next(filter(None, map(parse_event, lines)), None)
        kept = deque(() if first is None or not wanted.fits(first) else (first,), at_most)
        kept.extend(_chosen(lines, wanted))
        if len(kept) == at_most or (first is not None and wanted.is_past(first.at_s)):
            return tail, kept
        tail.close()
        stride *= _STRIDE


def moment_s(text: str, *, now_s: float) -> float:
    """Seconds since the Unix epoch of ``2h`` (ago) or of an ISO moment; one without a zone is in this machine's.

    Raises:
        ConfigError: neither of them.
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        pass
    try:
        return now_s - parse_duration_s(text)
    except ConfigError as error:
        raise ConfigError(
            f"--since is {text!r}; write how long ago, like 90s or 2h, or a moment, like 2026-11-30T02:15"
        ) from error


def _has(event: Event, text: str) -> bool:
    """In the line itself, or in what it says: there ``ü`` and a quotation mark stand as escapes."""
    line, sought = event.to_line(), text.casefold()
    if sought in line.decode().casefold():
        return True
    words = json.dumps(text, ensure_ascii=False)[1:-1].casefold()
    return _ESCAPE in line and words in json.dumps(json.loads(line), ensure_ascii=False).casefold()


def _new(tail: Tail, wanted: Wanted) -> Iterator[Event]:
    return _chosen(_lines(tail), wanted)


def _lines(tail: Tail) -> Iterator[bytes]:
    return chain.from_iterable(tail.file_by_file())


def _chosen(lines: Iterable[bytes], wanted: Wanted) -> Iterator[Event]:
    """One by one: a year's ledger is larger than a laptop's memory."""
    events = map(parse_event, filter(wanted.holder(), lines))
    return (event for event in events if event is not None and wanted.fits(event))


def _say(found: Iterable[Event], *, json_: bool) -> int:
    said = 0
    for said, event in enumerate(found, start=1):  # noqa: B007 -- given back
        if json_:
            typer.echo(event.to_line().decode(), nl=False)
        else:
            at = datetime.fromtimestamp(event.at_s, UTC).astimezone()
            head = f"{at:%Y-%m-%d %H:%M:%S} [{_COLOURS[event.side]}]{event.side:<8}[/]"
            words = f"[bold]{_shown(event.kind)}[/bold] {_shown(event.subject)}: {_shown(event.why)}"
            console.print(f"{head} {words}", highlight=False, soft_wrap=True)
    return said


def _shown(text: str) -> str:
    return escape(plain(text))
