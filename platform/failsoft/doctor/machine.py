"""This machine: versions, what is installed, the home folder, its room, its token, its clock, the host's memory."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from failsoft.artifacts.home import (
    ALERT_TOKEN_VARIABLE,
    LABEL_TOKEN_VARIABLE,
    TOKEN_VARIABLE,
    VIEWER_TOKEN_VARIABLE,
    Home,
)
from failsoft.doctor.finding import Finding, Mark
from failsoft.errors import ConfigError
from failsoft.health.clock import Clock
from failsoft.health.ledger import parse_event
from failsoft.health.ledger_files import all_lines
from failsoft.serving.start_up import check_versions, check_writable

NEEDED = ("ray", "torch", "lightgbm", "tokenizers", "safetensors", "pyarrow", "fastapi")
OPTIONAL = ("lightning", "transformers", "fsspec")
LITTLE_ROOM_BYTES = 2 * 1024**3
"""A checkpoint of the example and a dozen releases of it; a large model wants more."""
LITTLE_SHARED_BYTES = 512 * 1024**2
CLOCK_OFF_S = 5.0
"""Between this clock and the storage's: beyond what a slow write explains."""
_GIB = 1024**3


def versions() -> list[Finding]:
    """Python and the packages: what is missing, what was never tried."""
    found = []
    for name in NEEDED:
        there = _version(name)
        if there is None:
            mend = "pip install -e . in the checkout, or pip install failsoft"
            found.append(Finding(about=name, mark=Mark.BAD, said="is not installed", mend=mend))
        else:
            found.append(Finding(about=name, mark=Mark.GOOD, said=there))
    missing = [name for name in OPTIONAL if _version(name) is None]
    if missing:
        said = f"not installed, and needed only by who uses them: {', '.join(missing)}"
        found.append(Finding(about="extras", mark=Mark.GOOD, said=said))
    return [_python(), *found]


def _python() -> Finding:
    here = (sys.version_info.major, sys.version_info.minor)
    try:
        remarks = check_versions(python=here, ray=_version("ray") or "")
    except ConfigError as error:
        return Finding(about="python", mark=Mark.BAD, said=str(error), mend="make PYTHON=/path/to/python3.12 setup")
    return Finding(
        about="python",
        mark=Mark.REMARK if remarks else Mark.GOOD,
        said="; ".join(remarks) or f"{here[0]}.{here[1]}, with a Ray that was tried",
    )


def storage(home: Home, *, clock: Clock) -> list[Finding]:
    """The home folder: may one write there, how much room is left, does its clock agree with this machine's."""
    try:
        check_writable(home)
    except ConfigError as error:
        return [Finding(about="home", mark=Mark.BAD, said=str(error), mend="another folder with --home")]
    return [
        Finding(about="home", mark=Mark.GOOD, said=f"{home.root} can be written"),
        _room(home.root, about="room", little_bytes=LITTLE_ROOM_BYTES, mend="failsoft release gc, failsoft ckpt prune"),
        _clock_of(home, clock),
        _last_word(home, clock),
    ]


def host_memory(folder: Path = Path("/dev/shm")) -> Finding:  # noqa: S108 -- looked at, nothing is written there
    """Where snapshots outlive a worker."""
    if not folder.is_dir():
        return Finding(
            about="host memory",
            mark=Mark.REMARK,
            said=f"{folder} is absent: a killed worker goes on from disk, not from a snapshot in memory",
        )
    mend = "in a container: --shm-size 8g; else FAILSOFT_HOST_MEMORY=off"
    return _room(folder, about="host memory", little_bytes=LITTLE_SHARED_BYTES, mend=mend)


def tokens(home: Home) -> list[Finding]:
    """Those of operators, and of others where there are any: long enough, and only their owner's.

    None is made, and none is shown.
    """
    others = (
        ("label", LABEL_TOKEN_VARIABLE, home.label_tokens),
        ("alert", ALERT_TOKEN_VARIABLE, home.alert_tokens),
        ("viewer", VIEWER_TOKEN_VARIABLE, home.viewer_tokens),
    )
    there = [one for one in others if os.environ.get(one[1]) or (home.root / f"{one[0]}-token").exists()]
    return [_operator(home), *(_token(home, *one) for one in there)]


def _operator(home: Home) -> Finding:
    path = home.root / "operator-token"
    if not os.environ.get(TOKEN_VARIABLE) and not path.exists():
        said = f"none yet; the first failsoft serve writes {path}"
        return Finding(about="operator token", mark=Mark.GOOD, said=said)
    return _token(home, "operator", TOKEN_VARIABLE, home.operator_tokens)


def _token(home: Home, whose: str, variable: str, read: Callable[[], object]) -> Finding:
    about, path = f"{whose} token", home.root / f"{whose}-token"
    try:
        read()
    except ConfigError as error:
        mend = f"unset {variable}" if os.environ.get(variable) else f"chmod 600 {path}"
        return Finding(about=about, mark=Mark.BAD, said=str(error), mend=mend)
    except (OSError, UnicodeDecodeError) as error:
        return Finding(about=about, mark=Mark.BAD, said=str(error), mend=f"remove {path}: a new one is made")
    source = f"${variable}" if os.environ.get(variable) else str(path)
    return Finding(about=about, mark=Mark.GOOD, said=f"from {source}, which only its owner can read")


def _room(folder: Path, *, about: str, little_bytes: int, mend: str) -> Finding:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding(about=about, mark=Mark.UNKNOWN, said=f"can't be asked ({error})")
    said = f"{free / _GIB:.1f} GiB free in {folder}"
    if free < little_bytes:
        return Finding(about=about, mark=Mark.REMARK, said=f"{said}: little", mend=mend)
    return Finding(about=about, mark=Mark.GOOD, said=said)


def _clock_of(home: Home, clock: Clock) -> Finding:
    """A file's time is given by whoever holds the storage: another machine, where it is shared."""
    before_s = clock.wall_s()
    with tempfile.TemporaryFile(dir=home.serving) as probe:
        probe.write(b"0")
        probe.flush()
        written_s = os.fstat(probe.fileno()).st_mtime
    off_s = max(before_s - written_s, written_s - clock.wall_s(), 0.0)
    if off_s > CLOCK_OFF_S:
        said = f"this machine and the storage differ by {off_s:.0f} s; times in the ledger will not fit together"
        return Finding(about="clock", mark=Mark.REMARK, said=said, mend="timedatectl set-ntp true, on both")
    return Finding(about="clock", mark=Mark.GOOD, said="agrees with the storage's")


def _last_word(home: Home, clock: Clock) -> Finding:
    events, torn, last = 0, 0, None
    try:
        for event in map(parse_event, all_lines(home.ledger)):  # never all of a year's at once
            events, torn, last = events + (event is not None), torn + (event is None), event or last
    except OSError as error:
        mend = f"chown it to whoever runs failsoft: {home.ledger}"
        return Finding(about="ledger", mark=Mark.BAD, said=f"can't be read: {error}", mend=mend)
    if home.ledger.exists() and stat.S_IMODE(home.ledger.stat().st_mode) & 0o077:
        said = f"{home.ledger} can be read by other users"
        return Finding(about="ledger", mark=Mark.REMARK, said=said, mend=f"chmod 600 {home.ledger}")
    if last is None:
        return Finding(about="ledger", mark=Mark.GOOD, said="no event yet")
    ahead_s = last.at_s - clock.wall_s()
    said = f"{events} events, {torn} torn lines"
    if ahead_s > CLOCK_OFF_S:
        said = f"{said}; the last one is {ahead_s:.0f} s in the future: a clock was, or is, wrong"
        return Finding(about="ledger", mark=Mark.REMARK, said=said, mend="timedatectl set-ntp true")
    return Finding(about="ledger", mark=Mark.GOOD, said=said)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
