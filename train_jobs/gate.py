"""Judges a release by name or folder, with the sanitiser that serving puts before it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ConfigError, FailsoftError
from failsoft.health.clock import SystemClock
from failsoft.release.candidate import open_release
from failsoft.release.gates import not_measured
from failsoft.release.inspect import Watch, gate_bundle
from failsoft.release.report import GateReport
from train_jobs.publish import cleaner_of


def gate_release(
    release: str,
    *,
    home: Home,
    traffic: Sequence[str] | None = None,
    against: str | None = None,
    watch: Watch = lambda _what: None,
) -> GateReport:
    """The gate report of a release.

    Args:
        release: name of a published release, or path of a folder.
        home: where published releases lie.
        traffic: recent texts of callers, as they came; None judges by validation texts alone.
        against: name of the release that is served now, to be compared with.
        watch: told what is measured next.

    Raises:
        ArtifactError: ``against`` can't be opened. What is wrong with ``release`` itself is a failed gate.
    """
    releases = home.releases(SystemClock())
    previous = None if against is None else Bundle.of(releases.open(against))
    try:
        bundle = Bundle.of(releases.open(release)) if _is_published(release, releases) else open_release(Path(release))
        clean = cleaner_of(bundle)
    except FailsoftError as error:
        return GateReport(release=Path(release).name, results=(not_measured("loads as serving loads it", str(error)),))
    return gate_bundle(bundle, traffic, previous=previous, clean=clean, watch=watch)


def read_traffic(path: Path) -> list[str]:
    """Texts of callers, one a line; blank lines are none.

    Raises:
        ConfigError: the file can't be read, or holds no text.
    """
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")  # other line breaks are part of what callers write
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read as traffic ({error}); give a UTF-8 file, one text a line") from error
    texts = [line.removesuffix("\r") for line in lines if line.strip()]
    if not texts:
        raise ConfigError(f"{path} holds no text; give a UTF-8 file, one text a line")
    return texts


def _is_published(release: str, releases: ArtifactStore) -> bool:
    """A name means a published release; whatever holds a slash or begins with a dot, or is none, means a folder."""
    return "/" not in release and release[:1] != "." and (releases.root / release).is_dir()
