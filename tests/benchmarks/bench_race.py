"""The race: failsoft against what people use today, in one command and one table.

Each leg runs in a process of its own (``race_legs.py``) and its outcome is kept in ``build/bench/race``: a race that
was broken off goes on with the legs that are missing or failed, while the checkout is the same and for half a day at
most. A ratio below 1 is in failsoft's favour: it is always failsoft's time over the other's, in the same round.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from tests.benchmarks.gateway_contenders import environment
from tests.benchmarks.leash import on_leash
from tests.benchmarks.measuring import Ratio
from tests.benchmarks.outcome import Outcome, Row, Sheet
from tests.benchmarks.race_legs import LEGS, Claim, Leg
from tests.benchmarks.race_picture import draw
from tests.conftest import ROOT

FOLDER: Path = Path("build/bench/race")
QUICK = ("incident_simulated",)
TABLES = "tables.md"
_KEEPS_S = 12 * 3600.0
_FULL_FACTOR = 4.0
_COLUMNS = ("what", "against", "failsoft takes", "middle half", "of the fastest", "A against A", "")


class Race(Outcome):
    """An outcome whose ratios are told in one table."""

    def tables(self) -> list[Table]:
        """The race first, then the incidents; what each leg timed stands in the JSON."""
        return [sheet.table() for sheet in self.sheets]


def measure(*, quick: bool, full: bool = False) -> Outcome:
    """All legs; quick: the one that needs no other process."""
    names = QUICK if quick else tuple(LEGS)
    folder = _begin(FOLDER, profile="quick" if quick else "full" if full else "short")
    failed = {name: why for name in names if (why := _leg(name, LEGS[name], folder, full=full)) is not None}
    outcome = told(folder, names)
    outcome.notes += [f"{name} failed: {why}" for name, why in failed.items()]
    outcome.notes += [f"drawn: {path}" for path in draw(folder, folder)]
    (folder / TABLES).write_text("\n\n".join(map(markdown, outcome.sheets)) + "\n", "utf-8")
    if not failed:
        _mark(folder).unlink()
    return outcome


def told(folder: Path, names: Sequence[str]) -> Outcome:
    """The race as it stands in the folder; legs that are not there are left out."""
    outcome, lines, sheets = Race(name="race"), list[tuple[str, ...]](), list[Sheet]()
    for name in names:
        found = _read(folder / f"{name}.json")
        if found is None:
            continue
        for claim, ratio, control in claims_of(LEGS[name], found):
            key = f"{name}: {claim.what} over {claim.against}"
            outcome.ratios[key] = ratio
            lines.append(line(claim, ratio, control))
        outcome.controls |= {f"{name}, {part}": Ratio(**each) for part, each in found["controls"].items()}
        outcome.rows += [Row(**(row | {"part": f"{name}, {row['part']}"})) for row in found["rows"]]
        outcome.notes += [f"{name}: {note}" for note in found["notes"]]
        sheets += [Sheet(**sheet | {"rows": [tuple(row) for row in sheet["rows"]]}) for sheet in found["sheets"]]
    outcome.sheets = [Sheet(title="The race: below 1 failsoft is ahead", columns=_COLUMNS, rows=lines), *sheets]
    return outcome


def claims_of(leg: Leg, found: Mapping[str, Any]) -> Iterator[tuple[Claim, Ratio, Ratio | None]]:
    """Those that the leg has measured, as failsoft's time over the other's, with the A/A that belongs to each."""
    for claim in leg.claims:
        if claim.ratio not in found["spread"]:
            continue
        ratio = Ratio(**found["spread"][claim.ratio])
        controls = [each for part, each in found["controls"].items() if part.startswith(claim.control)]
        yield claim, turned(ratio) if claim.upside_down else ratio, Ratio(**controls[0]) if controls else None


def turned(ratio: Ratio) -> Ratio:
    """The same comparison the other way round."""
    return Ratio(value=1 / ratio.value, low=1 / ratio.high, high=1 / ratio.low, by_minimum=1 / ratio.by_minimum)


def markdown(sheet: Sheet) -> str:
    """A table for the docs."""
    rows = [sheet.columns, tuple("---" for _ in sheet.columns), *sheet.rows]
    return f"{sheet.title}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows)


def line(claim: Claim, ratio: Ratio, control: Ratio | None) -> tuple[str, ...]:
    """One row of the table; who is ahead is said only where the middle half, and A against A, leave no doubt."""
    edges = [control.value, control.low, control.high] if control else [1.0]
    chance = max(max(edge, 1.0 / edge) for edge in edges)
    word = "ahead" if ratio.high < 1.0 / chance else "behind" if ratio.low > chance else "no telling"
    if not ratio.low < ratio.high:
        word = "one round only"
    return (
        claim.what,
        claim.against,
        f"{ratio.value:.3g} ×",
        f"{ratio.low:.3g} – {ratio.high:.3g}",
        f"{ratio.by_minimum:.3g}",
        "–" if control is None else f"{control.value:.3g} ({control.low:.3g} – {control.high:.3g})",
        word,
    )


@dataclass(frozen=True, kw_only=True)
class _Begun:
    profile: str
    commit: str
    at_s: float


def _mark(folder: Path) -> Path:
    return folder / "unfinished"


def _begin(folder: Path, *, profile: str) -> Path:
    """The folder with what is there of the same race; emptied when another one lies in it."""
    folder.mkdir(parents=True, exist_ok=True)
    now, before = _Begun(profile=profile, commit=_commit(), at_s=time.time()), _read(_mark(folder))
    same = before is not None and before["profile"] == profile and before["commit"] == now.commit
    if before is not None and same and now.at_s - before["at_s"] < _KEEPS_S:
        return folder
    for path in folder.iterdir():
        path.unlink()
    _mark(folder).write_text(json.dumps(vars(now)), "utf-8")
    return folder


def _leg(name: str, leg: Leg, folder: Path, *, full: bool) -> str | None:
    """Run a leg that is not there yet; why it failed, or None."""
    if (folder / f"{name}.json").exists():
        _say(f"{name}: kept from before")
        return None
    command = [sys.executable, "-m", "tests.benchmarks.race_legs", name, "--out", str(folder)]
    limit_s, began_s = leg.limit_s * (_FULL_FACTOR if full else 1.0), time.monotonic()
    _say(f"{name}: at most {limit_s:.0f} s")
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            on_leash(command + ["--full"] * full), cwd=ROOT, env=environment(), stdout=out, stderr=subprocess.STDOUT
        )
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            code = None
    took_s = time.monotonic() - began_s
    if code == 0:
        _say(f"{name}: {took_s:.0f} s")
        return None
    why = f"exit {code} after {took_s:.0f} s; see {log}" if code is not None else f"ended after {took_s:.0f} s"
    _say(f"{name}: {why}")
    return why


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):  # never begun, or broken off while it was written
        return None
    return found


def _commit() -> str:
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "no git"


def _say(words: str) -> None:
    print(words, flush=True)
