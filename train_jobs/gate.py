"""Judges a release by name or folder, with the sanitiser that serving puts before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from failsoft.artifacts.asides import being_read
from failsoft.artifacts.bundle import Bundle, Role
from failsoft.artifacts.home import Home
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ArtifactError, ArtifactMissingError, ConfigError, FailsoftError
from failsoft.health.clock import Clock
from failsoft.models.narrow import stored_as
from failsoft.release.candidate import open_release
from failsoft.release.gates import not_measured
from failsoft.release.given import Given, Watch, as_given
from failsoft.release.inspect import gate_bundle
from failsoft.release.publish import may_compare
from failsoft.release.replica import Probe
from failsoft.release.report import GateReport
from failsoft.release.settings import GateSettings
from train_jobs.publish import cleaner_of
from train_jobs.replica import probe_replica
from train_jobs.served import roles_of

_MAX_TRAFFIC_BYTES = 64 << 20
"""Some hundred thousand texts; what is decided by more of them was decided by these."""
SERVED = "served"
"""As ``--against``: the release that the home's routing plan has in service."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What to judge, and with what."""

    release: str
    """Name of a published release, or path of a folder."""
    home: Home
    """Where published releases lie."""
    against: str | None = None
    """Name of the release to be compared with, or ``served``; None: what serves now, if that is known, else none."""
    traffic: Sequence[str] | None = None
    """Recent texts of callers, as they came; None judges by validation texts alone."""
    settings: GateSettings = field(default_factory=GateSettings)
    probe: Probe | None = probe_replica
    """Starts a replica; None judges without."""


def gate_release(ask: Ask, *, clock: Clock, watch: Watch = lambda _what: None) -> GateReport:
    """The gate report of a release.

    Args:
        ask: what to judge.
        clock: dates waivers.
        watch: told what is measured next.

    Raises:
        ConfigError: ``served`` was asked for and nothing serves.
        ArtifactError: ``against``, or the release in service, can't be opened. What is wrong with the release itself is
            a failed gate.
        PlanStoreError: the routing plan can't be read.
    """
    releases = ask.home.releases(clock)
    previous = _reference(ask, clock)
    try:
        bundle = opened(ask.release, releases)
        if bundle.own_model:
            return gate_bundle(bundle, _limits(ask, clock), watch=watch)
        clean, whole = cleaner_of(bundle), whole_of(bundle, releases)
    except FailsoftError as error:
        absent = not_measured("loads as serving loads it", str(error))
        return GateReport(release=Path(ask.release).name, results=(absent,))
    alone = _why_alone(bundle, previous, ask)
    compared = None if alone else previous
    given = replace(
        _limits(ask, clock),
        traffic=ask.traffic,
        previous=compared,
        alone=alone or "",
        clean=clean,
        previous_clean=cleaner_of(compared) if compared else as_given,
        whole=whole,
        probe=ask.probe,
    )
    with being_read(bundle.path):  # a candidate that lies there is not cleared away by a publication meanwhile
        return gate_bundle(bundle, given, watch=watch)


def _limits(ask: Ask, clock: Clock) -> Given:
    today = datetime.fromtimestamp(clock.wall_s(), tz=UTC).date()
    return Given(policy=ask.settings.policy, waivers=ask.settings.waivers, today=today)


def _why_alone(bundle: Bundle, previous: Bundle | None, ask: Ask) -> str | None:
    """Why the release is compared with none, in words; None: it is compared.

    Raises:
        ConfigError: it was to be compared with the release of an own model.
    """
    if previous is None:
        return "none serves as far as is stored here, and none was named"
    if bundle.digest and bundle.digest == previous.digest:  # a candidate's folder may have a served release's name
        return f"it is {previous.name} itself"
    if ask.against is None and not may_compare(bundle, previous):
        return f"{previous.name}, which serves, does another task"
    if previous.own_model:
        raise ConfigError(f"{previous.name} is the release of an own model; compare with one of the same task")
    return None


def opened(release: str, releases: ArtifactStore) -> Bundle:
    """A published release by its name, or the one in a folder.

    Raises:
        ArtifactError: it is absent, torn or changed.
    """
    return Bundle.of(releases.open(release)) if is_published(release, releases) else open_release(Path(release))


def whole_of(bundle: Bundle, releases: ArtifactStore) -> Bundle | None:
    """The release with the whole weights of a narrow one; None for a whole one, or when it is gone.

    Raises:
        ArtifactError: the weights can't be read.
    """
    source = stored_as(bundle.part(Role.WEIGHTS)).of
    try:
        return Bundle.of(releases.open(source)) if source else None
    except ArtifactMissingError:  # the gate that needs it says so
        return None


def _reference(ask: Ask, clock: Clock) -> Bundle | None:
    if ask.against not in (None, SERVED):
        return Bundle.of(ask.home.releases(clock).open(str(ask.against)))
    served = roles_of(ask.home).served
    if served is None and ask.against == SERVED:
        raise ConfigError(f"nothing serves from {ask.home.root} as far as is stored there; name a release instead")
    try:
        return None if served is None else Bundle.of(ask.home.releases(clock).open(served))
    except ArtifactError as error:  # passing over it would let a release pass that is worse than what serves
        raise ArtifactError(
            f"{served}, which serves, can't be compared with: {error}. Name another one with --against"
        ) from error


def read_traffic(path: Path) -> list[str]:
    """Texts of callers, one a line; blank lines are none.

    Raises:
        ConfigError: the file can't be read, is larger than memory should hold, or holds no text.
    """
    try:
        if path.stat().st_size > _MAX_TRAFFIC_BYTES:
            raise ConfigError(
                f"{path} is larger than {_MAX_TRAFFIC_BYTES >> 20} MiB; give the last part: tail -n 100000"
            )
        lines = path.read_bytes().decode("utf-8").split("\n")  # other line breaks are part of what callers write
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read as traffic ({error}); give a UTF-8 file, one text a line") from error
    texts = [line.removesuffix("\r") for line in lines if line.strip()]
    if not texts:
        raise ConfigError(f"{path} holds no text; give a UTF-8 file, one text a line")
    return texts


def is_published(release: str, releases: ArtifactStore) -> bool:
    """A name means a published release; whatever holds a slash or begins with a dot, or is none, means a folder."""
    return "/" not in release and release[:1] != "." and (releases.root / release).is_dir()
