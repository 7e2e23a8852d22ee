"""Which published releases stay: the served one, what it may go back to, what somebody pinned, the newest ones."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failsoft.artifacts.home import Home
from failsoft.artifacts.store import Artifact, write_durably
from failsoft.errors import ConfigError, DamagedArtifactError
from failsoft.health.json_object import json_value

_LEAST_KEPT = 2
"""With fewer there would be nothing to go back to."""


class Pins:
    """Releases that stay until somebody unpins them: ``pins.json`` in the home, name to reason."""

    def __init__(self, home: Home) -> None:
        self._path = home.root / "pins.json"

    def all(self) -> Mapping[str, str]:
        """Name and reason of each.

        Raises:
            DamagedArtifactError: the file can't be read. Nothing may be removed then: nobody knows what is pinned.
        """
        return _read(self._path)

    def pin(self, name: str, why: str) -> None:
        """Keep a release; again with another reason changes the reason."""
        with self.held():
            self._write({**self.all(), name: why})

    def unpin(self, name: str) -> None:
        """Let a release go.

        Raises:
            ConfigError: it is not pinned.
        """
        with self.held():
            pins = dict(self.all())
            if name not in pins:
                raise ConfigError(f"{name} is not pinned; pinned are: {', '.join(sorted(pins)) or 'none'}")
            del pins[name]
            self._write(pins)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else pins or unpins meanwhile, in any process of this machine: neither of two pins gets lost."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path.with_name(f".{self._path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _write(self, pins: Mapping[str, str]) -> None:
        write_durably(self._path, json.dumps(dict(pins), indent=1, sort_keys=True).encode())


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One release, and why it stays."""

    artifact: Artifact
    kept_for: tuple[str, ...]
    """Empty: nothing holds it."""

    @property
    def size_bytes(self) -> int:
        """Of all its files."""
        return sum(entry.size_bytes for entry in self.artifact.manifest.files.values())


def standings(
    releases: Sequence[Artifact], *, in_use: Mapping[str, str], pins: Mapping[str, str], keep_newest: int
) -> list[Standing]:
    """Why each release stays, oldest first.

    Args:
        releases: all published ones, oldest first.
        in_use: what the routing plan says of some of them, such as ``served``.
        pins: see :class:`Pins`.
        keep_newest: so many of the newest stay.

    Raises:
        ConfigError: fewer than two would stay.
    """
    if keep_newest < _LEAST_KEPT:
        raise ConfigError(f"keep is {keep_newest}; keep at least {_LEAST_KEPT}: the newest and one to go back to")
    why: dict[str, list[str]] = {release.name: [] for release in releases}
    for release in releases[-keep_newest:]:
        why[release.name].append("newest")
    _add(why, in_use.items())
    _add(why, ((name, f"pinned: {reason}") for name, reason in pins.items()))
    used = [release for release in releases if release.name in in_use]
    _add(why, ((_named(release, "previous"), f"before {release.name}") for release in used))
    kept = [release for release in releases if why[release.name]]
    _add(why, ((_whole_of(release), f"whole weights of {release.name}") for release in kept))
    return [Standing(artifact=release, kept_for=tuple(why[release.name])) for release in releases]


def _add(why: dict[str, list[str]], reasons: Iterable[tuple[str | None, str]]) -> None:
    for name, reason in reasons:
        if name in why:
            why[name].append(reason)


def _named(release: Artifact, key: str) -> str | None:
    value = release.manifest.meta.get(key)
    return str(value) if value else None


def _whole_of(release: Artifact) -> str | None:
    provenance: Any = release.manifest.meta.get("provenance")
    return str(provenance["variant_of"]) if isinstance(provenance, dict) and "variant_of" in provenance else None


def _read(path: Path) -> Mapping[str, str]:
    try:
        body = json_value(path.read_text("utf-8"))
        return {str(name): str(why) for name, why in body.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise DamagedArtifactError(f"{path} can't be read ({error}); mend or remove it, then pin again") from error
