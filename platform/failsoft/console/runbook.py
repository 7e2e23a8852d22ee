"""The runbook as a page of the console: ``docs/runbook.md``, of whose marks only those are known that it uses.

It is there when nothing else can be reached: no network, no checkout. The package holds the file as a link to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html import escape
from importlib.resources import files

_HEADING = re.compile(r"(#{1,3}) (.+)")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_META = (
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    '<title>failsoft runbook</title><link rel="icon" href="data:,"><link rel="stylesheet" href="console.css">'
)
_BACK = '<header><h1>failsoft</h1><p id="fresh"><a href="../console">to the console</a></p></header>'


@cache
def runbook_page() -> bytes:
    """The page; sections have the anchors that Markdown viewers give them."""
    text = (files("failsoft.console") / "page" / "runbook.md").read_text("utf-8")
    body = "".join(as_html(text))
    main = f'<main class="text">{body}</main>'
    return f'<!doctype html><html lang="en"><head>{_META}</head><body>{_BACK}{main}</body></html>'.encode()


def as_html(text: str) -> Iterator[str]:
    """Headings, paragraphs, code in fences; in them bold, emphasis, code and links to other sections."""
    for number, piece in enumerate(text.split("```")):
        if number % 2:
            yield f'<pre tabindex="0">{escape(piece.strip(chr(10)))}</pre>'
            continue
        for block in re.split(r"\n\s*\n", piece):
            heading = _HEADING.fullmatch(block.strip())
            if heading:
                level, title = len(heading[1]), heading[2]
                yield f'<h{level} id="{anchor(title)}">{_inline(title)}</h{level}>'
            elif block.strip():
                yield f"<p>{_inline(block.strip())}</p>"


def anchor(title: str) -> str:
    """Of a heading: small letters, dashes for spaces, nothing else."""
    return re.sub(r"[^\w\- ]", "", title.casefold()).replace(" ", "-")


def _inline(text: str) -> str:
    """Nothing is done inside of code."""
    pieces = text.split("`")
    return "".join(f"<code>{escape(piece)}</code>" if n % 2 else _words(piece) for n, piece in enumerate(pieces))


def _words(text: str) -> str:
    text = _LINK.sub(_as_link, escape(text, quote=False))
    text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"(?<!\*)\*([^*]+)\*(?!\*)", r"<em>\1</em>", text)


def _as_link(found: re.Match[str]) -> str:
    """Links to other files lead nowhere here: only their words stay."""
    words, target = found[1], found[2]
    return f'<a href="{escape(target)}">{words}</a>' if target.startswith("#") else words
