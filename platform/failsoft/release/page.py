"""A gate report as one HTML page that asks nothing of any network: for whoever decides, and for the archive."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from string import Template

from failsoft.release.report import GateReport, GateResult

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Gates of $release</title><style>
:root { color-scheme: light dark; --good: #1a7f4b; --bad: #c4302b; --warn: #a86500; --line: #8885; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { border-left: .5rem solid var(--$tone); background: var(--soft); padding: .8rem 1rem; }
.verdict strong { color: var(--$tone); }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .4rem .6rem; vertical-align: top;
border-bottom: 1px solid var(--line); overflow-wrap: anywhere; } td.number { text-align: right; white-space: nowrap;
font-variant-numeric: tabular-nums; } .pass { color: var(--good); } .fail { color: var(--bad); font-weight: 700; }
.waived { color: var(--warn); font-weight: 700; } code { font-size: .9em; } .wide { overflow-x: auto; }
td.fact { overflow-wrap: anywhere; } summary { cursor: pointer; }
@media (prefers-color-scheme: dark) { :root { --good: #4cc38a; --bad: #ff7b72; --warn: #e3b341; } }
</style></head><body>
<h1>Gates of release <code>$release</code></h1>
<p class="verdict"><strong>$verdict</strong><br>$summary</p>
$notes
<h2>Each gate, what failed first</h2>
<div class="wide"><table><thead><tr><th scope="col">Gate</th><th scope="col">Result</th><th scope="col">Measured</th>
<th scope="col">Limit</th><th scope="col">Why</th></tr></thead>
<tbody>
$rows
</tbody></table></div>
<h2>What coverage means here</h2>
<p>A vocabulary that falls back to bytes covers everything and says nothing, so there are three measures.
<em>Readable</em>: of the words as they run, the share with a number of its own or spelt in characters that training
knew; every use counts, so emoji or a foreign script fail. <em>Recurring word types</em>: of the uses of words that come
back in 0.3 % of the texts or more, the share that training held, before any fallback. <em>Unknown words</em>: how much
larger their share is in traffic than in own held-out texts. Each is decided by the worse end of its interval.</p>
<h2>What it was judged by</h2>
<details><summary>Digests, texts and limits in force</summary>
<table><tbody>
$limits
</tbody></table></details>
</body></html>
""")
_SMALL = 1e-6
"""What is smaller is rounding."""
_ROW = Template(
    '<tr><td>$name</td><td class="$tone">$mark</td><td class="number">$value</td><td class="number">$limit</td>'
    "<td>$why</td></tr>"
)
_FACT = Template('<tr><th scope="row">$name</th><td class="fact">$value</td></tr>')


def to_html(report: GateReport) -> str:
    """The page. Every text from outside is escaped, and the page may load and run nothing."""
    worst_first = sorted(report.results, key=lambda result: (result.passed, result.acceptable))
    against = f"Compared with release {report.against}. " if report.against else "Compared with no served release. "
    return _PAGE.substitute(
        release=escape(report.release),
        tone="good" if report.passed else "bad",
        verdict="It may be served." if report.passed else "It must not be served.",
        summary=escape(against + _counted(report)),
        notes="".join(f"<p>{escape(note)}</p>" for note in report.notes),
        rows="\n".join(_row(result) for result in worst_first),
        limits="\n".join(_facts(report)),
    )


def _counted(report: GateReport) -> str:
    passed = sum(result.passed for result in report.results)
    return f"{passed} gates passed, {len(report.failures)} failed, {len(report.waived)} are waived."


def _row(result: GateResult) -> str:
    tone, mark = ("pass", "pass") if result.passed else ("waived", "waived") if result.acceptable else ("fail", "FAIL")
    waived = f"<br><strong>Waived:</strong> {escape(result.waived)}" if result.waived else ""
    return _ROW.substitute(
        name=escape(result.name),
        tone=tone,
        mark=mark,
        value=_number(result.value),
        limit=_number(result.limit),
        why=escape(result.why) + waived,
    )


def _facts(report: GateReport) -> list[str]:
    limits = report.facts.get("limits", {})
    known = {name: value for name, value in report.facts.items() if name != "limits" and value not in (None, [])}
    return [
        _FACT.substitute(name=escape(str(name).replace("_", " ")), value=escape(_in_words(value)))
        for name, value in {**known, **limits}.items()
    ]


def _in_words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_in_words(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(map(_in_words, value)) or "none"
    return str(value)


def _number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.4g}" if not value or abs(value) >= _SMALL else "≈ 0"
