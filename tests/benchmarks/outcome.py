"""What a benchmark found, as JSON for later and as a table for now."""

from __future__ import annotations

import json
import math
import os
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.table import Table

from tests.benchmarks.measuring import Ratio, Timings

PACKAGES = ("torch", "numpy", "ray", "lightgbm", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One contender's time for one call."""

    part: str
    contender: str
    median_s: float
    low_s: float
    high_s: float
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table of what was found beside times; shares are fractions 0..1."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def table(self) -> Table:
        """For people."""
        made = Table(*self.columns, title=self.title, title_justify="left")
        for row in self.rows:
            made.add_row(*row)
        return made


@dataclass(kw_only=True)
class Outcome:
    """Collects rows and ratios while a benchmark runs."""

    name: str
    processes: int = 1
    """Processes that worked on each ratio; stated, since a ratio of one process says nothing about ten."""
    threads: int = 1
    """Threads of each process."""
    rows: list[Row] = field(default_factory=list)
    ratios: dict[str, Ratio] = field(default_factory=dict)
    controls: dict[str, Ratio] = field(default_factory=dict)
    """A against A, by part: how far from 1 chance alone goes."""
    notes: list[str] = field(default_factory=list)
    sheets: list[Sheet] = field(default_factory=list)
    more: dict[str, object] = field(default_factory=dict)
    """What else goes into the JSON, plain values."""

    def add(self, part: str, timings: Timings) -> None:
        """Add a part's timings and its control."""
        for contender in timings.seconds:
            low, high = timings.quartiles_s(contender)
            row = Row(part=part, contender=contender, median_s=timings.median_s(contender), low_s=low, high_s=high)
            self.rows.append(row)
        self.controls[part] = timings.control()

    def as_dict(self) -> dict[str, object]:
        """For JSON: flat ``ratios``, their spread, the rows and the environment."""
        return {
            "name": self.name,
            "ratios": {name: ratio.value for name, ratio in self.ratios.items()},
            "spread": {name: asdict(ratio) for name, ratio in self.ratios.items()},
            "controls": {part: asdict(ratio) for part, ratio in self.controls.items()},
            "processes": self.processes,
            "threads": self.threads,
            "environment": environment(),
            "rows": [asdict(row) for row in self.rows],
            "notes": self.notes,
            "sheets": [asdict(sheet) for sheet in self.sheets],
            "more": self.more,
        }

    def write(self, folder: Path) -> Path:
        """Write ``NAME.json``; the folder is made."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(self.as_dict(), indent=1), "utf-8")
        return path

    def tables(self) -> list[Table]:
        """Timings, then ratios, then what else was found."""
        title = f"{self.name}: {self.processes} process, {self.threads} thread, contenders interleaved"
        timings = Table("part", "contender", "median", "middle half", "note", title=title, title_justify="left")
        for row in self.rows:
            half = f"{in_words(row.low_s)} – {in_words(row.high_s)}"
            timings.add_row(row.part, row.contender, in_words(row.median_s), half, row.note)
        ratios = Table("ratio", "median", "middle half", "of the fastest", title_justify="left")
        for name, ratio in self.ratios.items():
            ratios.add_row(name, *_cells(ratio))
        for part, ratio in self.controls.items():
            ratios.add_row(f"[dim]A against A: {part}[/dim]", *_cells(ratio))
        return [*([timings] if self.rows else []), ratios, *(sheet.table() for sheet in self.sheets)]


def in_words(seconds: float) -> str:
    """A time in the unit that suits it."""
    if not math.isfinite(seconds):
        return "–"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def environment() -> dict[str, object]:
    """The machine and the versions that the numbers belong to."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _cells(ratio: Ratio) -> tuple[str, str, str]:
    return f"{ratio.value:.3g}", f"{ratio.low:.3g} – {ratio.high:.3g}", f"{ratio.by_minimum:.3g}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
