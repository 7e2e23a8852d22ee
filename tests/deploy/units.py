"""systemd's unit files of deploy/systemd, read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

SYSTEMD = ROOT / "deploy" / "systemd"


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One file: its lines in order, of which some are there several times."""

    path: Path
    lines: tuple[tuple[str, str, str], ...]
    """Section, key, value."""

    @property
    def name(self) -> str:
        """Without its ending."""
        return self.path.stem

    def values(self, section: str, key: str) -> list[str]:
        """Everything that a key was set to."""
        return [value for where, what, value in self.lines if (where, what) == (section, key)]

    def last(self, section: str, key: str, default: str = "") -> str:
        """What it is set to at the end."""
        return (self.values(section, key) or [default])[-1]


def read_unit(path: Path) -> Unit:
    """A unit file as systemd reads it: comments left out, lines that go on joined."""
    section, lines = "", []
    for line in path.read_text("utf-8").replace("\\\n", " ").splitlines():
        text = line.strip()
        if text.startswith("[") and text.endswith("]"):
            section = text[1:-1]
        elif text and not text.startswith(("#", ";")):
            key, _, value = text.partition("=")
            lines.append((section, key, value))
    return Unit(path=path, lines=tuple(lines))


UNITS = [read_unit(path) for path in sorted(SYSTEMD.glob("*.service"))]
