"""What makes a worker process warm before it is needed, and whether a node can hold one more such process.

A restart of workers is mostly the start of Python and the import of torch. A spare process has that behind it. It holds
no data and no model, and touches no GPU: which one a process may use is decided when it becomes a worker.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from failsoft.errors import ConfigError
from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger, Side

VARIABLE = "FAILSOFT_SPARES"
"""In the environment of a run's processes: its :class:`Script`, as JSON."""
_NO_CUDA = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Whoever asks torch for CUDA while it loads is answered by NVML: CUDA itself reads ``CUDA_VISIBLE_DEVICES`` once, when
it is first called, and in a spare that is before Ray has said which GPU it will have."""
SPARE_READY = "spare_ready"
"""The ledger's word for a spare that stands by; names its process."""
_MEMINFO = Path("/proc/meminfo")
_STATM = Path("/proc/self/statm")


@dataclass(frozen=True, kw_only=True)
class SparePolicy:
    """How many spare processes stand by, and what they may cost."""

    per_worker: int = 1
    """Spares that each worker keeps on its node. All workers start anew when one dies, so one each makes a restart
    warm, and fewer hardly help; 0 keeps none."""
    after_s: float = 30.0
    """How long workers must have trained before they order spares: warming one up takes some 3 s of a core, which short
    runs would pay for nothing, and workers that die again and again over and over."""
    memory_fraction: float = 0.1
    """Of the node's available memory, what all its spares together may take; a model counts for nothing in this, since
    a spare holds none. Each takes some 270 MB (torch 2.13 for CPUs; more with CUDA's libraries)."""
    keep_s: float = 7 * 86_400.0
    """How long Ray keeps one that is not used; it ends with the driver in any case."""

    def __post_init__(self) -> None:
        """Refuse counts and shares that mean nothing."""
        if not 0 <= self.per_worker <= 4:
            raise ConfigError(f"per_worker is {self.per_worker}; use 1, or 0 for no spares (4 at most)")
        if not 0.0 < self.memory_fraction <= 1.0:
            raise ConfigError(f"memory_fraction is {self.memory_fraction}; use a fraction above 0 and up to 1")
        if not self.after_s >= 0.0:
            raise ConfigError(f"after_s is {self.after_s}; use 0 s or more")
        if not self.keep_s >= 60.0:
            raise ConfigError(f"keep_s is {self.keep_s}; use 60 s or more, for a spare takes seconds to warm up")


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """A node's memory, as one of its processes sees it."""

    available_bytes: int | None
    """What could be had without swapping; None: unknown."""
    spare_bytes: int | None
    """What a spare will take at most: as much as this process does of its own. None: unknown."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What one process orders."""

    count: int
    why: str


def ordered(policy: SparePolicy, here: Surroundings, *, total: int, count: int) -> Order:
    """How many spares a process may order. What is not known orders none: a run must not die of its own insurance.

    Args:
        policy: what they may take.
        here: the node's memory.
        total: spares that this node will hold if all who order get what they want.
        count: of these, the ones that this process wants.
    """
    if here.available_bytes is None or here.spare_bytes is None:
        return Order(count=0, why="this system doesn't say how much memory is free")
    said = f"{total} spares of at most {_mb(here.spare_bytes)}, {_mb(here.available_bytes)} available"
    if not here.spare_bytes * total <= policy.memory_fraction * here.available_bytes:
        return Order(count=0, why=f"{said}: more than {policy.memory_fraction:.0%} of it")
    return Order(count=count, why=said)


def surroundings() -> Surroundings:
    """Of this process."""
    return Surroundings(available_bytes=available_bytes(), spare_bytes=own_bytes())


def own_bytes(statm: Path = _STATM) -> int | None:
    """Memory of this process that it shares with no file: what another one like it would take; None where unknown."""
    try:
        _size, resident, shared, *_rest = (int(pages) for pages in statm.read_text("utf-8").split())
    except (OSError, ValueError):
        return None
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


class Tickets:
    """Tells ordered spares from other processes that begin: one file for each, which the spare takes away."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lay_out(self, count: int) -> None:
        """One for each spare that is ordered."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for _ in range(count):
            (self._folder / uuid4().hex).touch()

    def taken(self) -> bool:
        """Take one; False when there is none left. No two processes take the same."""
        tickets = self._folder.iterdir() if self._folder.is_dir() else iter(())
        return any(_removed(ticket) for ticket in tickets)


def available_bytes(meminfo: Path = _MEMINFO) -> int | None:
    """``MemAvailable`` of Linux; None where there is no such thing."""
    try:
        lines = meminfo.read_text("utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


@dataclass(frozen=True, kw_only=True)
class Script:
    """What a spare does before it stands by. All processes of a run carry the same, for Ray compares it."""

    modules: tuple[str, ...]
    """To load, by name."""
    ledger: str
    """Path of the run's ledger, where the spare says that it is ready."""
    run: str

    def text(self) -> str:
        """As JSON; equal scripts give equal texts."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def read(cls, text: str) -> Script:
        """The script that :meth:`text` gave."""
        told = json.loads(text)
        return cls(modules=tuple(told["modules"]), ledger=told["ledger"], run=told["run"])


def load(modules: Sequence[str]) -> dict[str, str]:
    """Load modules by name; those that can't be loaded, with the reason, are left for the run itself to trip over."""
    missing: dict[str, str] = {}
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 -- foreign code, long before the run needs it: never fatal here
            missing[name] = f"{type(error).__name__}: {error}"
    return missing


def warm_up(script: Script, clock: Clock) -> None:
    """Load what the run will load, and say so in the ledger."""
    began_s = clock.monotonic_s()
    with variables(_NO_CUDA):
        missing = load(script.modules)
    ledger = Ledger(Path(script.ledger), clock, side=Side.TRAINING, subject=script.run)
    took_s = clock.monotonic_s() - began_s
    ledger.record(SPARE_READY, "stands by", process=os.getpid(), took_s=round(took_s, 3), missing=missing)


@contextmanager
def variables(these: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process's environment for the time of the block, then put back what was there."""
    before = {name: os.environ.get(name) for name in these}
    os.environ.update(these)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ |= {} if value is None else {name: value}


def _removed(ticket: Path) -> bool:
    try:
        ticket.unlink()
    except FileNotFoundError:  # another process was faster
        return False
    return True


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.0f} MB"
