"""One self-contained HTML page of a demo or incident: the picture, the numbers, the timeline. No script, no request."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .3rem .9rem; border-bottom: 1px solid #8884; }
td.n { text-align: right; font-variant-numeric: tabular-nums; } img { max-width: 100%; background: #fff; }
"""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A titled table of words and numbers, already formatted."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_html(self) -> str:
        """A heading and a table; every cell is escaped."""
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        return f"<h2>{escape(self.title)}</h2><table><tr>{head}</tr>{body}</table>"


def write_report(path: Path, *, title: str, lead: str, picture: Path, tables: Sequence[Table]) -> None:
    """Write the page; the picture is embedded, so that the file can be mailed as it is."""
    image = base64.b64encode(picture.read_bytes()).decode("ascii")
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1><p>{escape(lead)}</p>"
        f'<img alt="Who answered, and how sure, over time" src="data:image/png;base64,{image}">'
        + "".join(table.to_html() for table in tables)
        + "</body></html>"
    )
    path.write_text(page, "utf-8")
