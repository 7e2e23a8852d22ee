"""A drill as one HTML page that asks nothing of any network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

from failsoft.drills.fault import Phase
from failsoft.drills.matrix import Matrix
from failsoft.drills.outcome import Outcome
from failsoft.drills.table import mends

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>failsoft drill</title><style>
:root { color-scheme: light dark; --good: #1a7f4b; --bad: #c4302b; --warn: #8a5a00; --line: #8885; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; } h3 { font-size: 1rem; margin-top: 1.5rem; }
.verdict { border-left: .5rem solid var(--tone); background: var(--soft); padding: .8rem 1rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .35rem .6rem; vertical-align: top;
border-bottom: 1px solid var(--line); overflow-wrap: anywhere; } td.n { text-align: right; white-space: nowrap;
font-variant-numeric: tabular-nums; } .survived { color: var(--good); } .lost { color: var(--bad); font-weight: 700; }
.undecided { color: var(--warn); font-weight: 700; } .not { opacity: .75; } .wide { overflow-x: auto; }
small { display: block; opacity: .8; } code { font-size: .9em; }
@media (prefers-color-scheme: dark) { :root { --good: #4cc38a; --bad: #ff7b72; --warn: #e3b341; } }
</style></head><body><main><h1>What survives which fault</h1>
$drills
</main></body></html>
""")
_HEADS = ("fault", "phase", "verdict", "lost", "repeated", "torn", "left", "again", "seconds", "why, and what was seen")


def to_html(matrices: Sequence[Matrix]) -> str:
    """The page. Every text from outside is escaped, and the page may load and run nothing."""
    return _PAGE.substitute(drills="\n".join(_drill(one) for one in matrices))


def _drill(matrix: Matrix) -> str:
    tone = "good" if matrix.passed else "bad"
    parts = [
        f"<h2>{escape(matrix.side)}: <code>{escape(matrix.subject)}</code></h2>",
        f'<p class="verdict" style="--tone: var(--{tone})"><strong>{escape(matrix.headline())}</strong><br>'
        f"Without a fault: {escape(matrix.reference.why)} ({matrix.reference.seconds:.1f} s).</p>",
        _grid(matrix),
        _listing("Each fault alone", matrix.alone),
        _listing("Together", matrix.together),
        _list("Smallest failing parts", _smallest(matrix)),
        _list("What to do", mends(matrix)),
        _list("How it was made, and what it does not say", [*matrix.notes, matrix.device, f"seed {matrix.seed}"]),
    ]
    return f"<section>{''.join(parts)}</section>"


def _grid(matrix: Matrix) -> str:
    """Fault by phase, one word each."""
    met = {outcome.faults[0].phase for outcome in matrix.alone}
    phases = [phase for phase in Phase if phase in met]
    if not phases:
        return ""
    kinds = list(dict.fromkeys(outcome.faults[0].kind for outcome in matrix.alone))
    found = {(outcome.faults[0].kind, outcome.faults[0].phase): outcome for outcome in matrix.alone}
    rows = [
        f'<tr><th scope="row">{escape(kind)}</th>{"".join(_cell(found.get((kind, phase))) for phase in phases)}</tr>'
        for kind in kinds
    ]
    heads = "".join(f'<th scope="col">{escape(phase)}</th>' for phase in phases)
    table = f'<table><thead><tr><th scope="col">fault</th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<h3>Matrix</h3><div class="wide" tabindex="0" role="group" aria-label="Matrix">{table}</div>'


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return "<td></td>"
    said = f"{outcome.word}, {outcome.seconds:.1f} s" if not outcome.skipped else outcome.word
    return f'<td class="{_tone(outcome)}" title="{escape(outcome.why)}">{said}</td>'


def _listing(title: str, outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return ""
    heads = "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    rows = "".join(_row(outcome) for outcome in outcomes)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<h3>{title}</h3><div class="wide" tabindex="0" role="group" aria-label="{title}">{table}</div>'


def _row(outcome: Outcome) -> str:
    counts = (outcome.lost, outcome.repeated, outcome.torn, outcome.left, outcome.again)
    numbers = "".join(f'<td class="n">{"" if outcome.skipped else number}</td>' for number in counts)
    seen = "".join(f"<small>{escape(line)}</small>" for line in outcome.seen)
    return (
        f"<tr><td>{'<br>'.join(escape(fault.kind) for fault in outcome.faults)}</td>"
        f"<td>{'<br>'.join(escape(fault.phase) for fault in outcome.faults)}</td>"
        f'<td class="{_tone(outcome)}">{outcome.word}</td>{numbers}'
        f'<td class="n">{"" if outcome.skipped else f"{outcome.seconds:.1f}"}</td>'
        f"<td>{escape(outcome.why)}{seen}</td></tr>"
    )


def _tone(outcome: Outcome) -> str:
    return "not" if outcome.skipped else outcome.word


def _smallest(matrix: Matrix) -> list[str]:
    return [
        f"{' and '.join(map(str, one.smallest))} (of {' and '.join(map(str, one.faults))}; {one.trials} trials)"
        for one in matrix.shrunk
    ]


def _list(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"<h3>{title}</h3><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
