"""Releases from what is there already: a candidate that failed before, or a narrow variant of a release."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from failsoft.artifacts.asides import being_read
from failsoft.artifacts.bundle import Bundle, Role
from failsoft.artifacts.home import Home
from failsoft.artifacts.manifest import MANIFEST_NAME
from failsoft.errors import ConfigError, DamagedArtifactError
from failsoft.health.clock import Clock
from failsoft.models.narrow import Width
from failsoft.release.leftovers import PROVENANCE
from failsoft.release.publish import Publisher
from failsoft.release.replica import Probe
from failsoft.release.settings import GateSettings
from failsoft.release.variants import make_variant
from train_jobs.gate import opened
from train_jobs.publish import cleaner_of
from train_jobs.replica import probe_replica
from train_jobs.served import served_release


@dataclass(frozen=True, kw_only=True)
class Source:
    """What to publish, and as what."""

    release: str
    """Folder of a candidate, or, with a width, also the name of a published release."""
    name: str | None = None
    """None: of date and contents; for a variant the release's own with the width behind it."""
    width: Width | None = None
    """Publish a variant with narrow weights."""
    settings: GateSettings = field(default_factory=GateSettings)
    probe: Probe | None = probe_replica


def republish(source: Source, *, home: Home, clock: Clock) -> Bundle:
    """Gate it again and publish it.

    Raises:
        ConfigError: a published release was named without a width: it is published already.
        GateError: naming the gates that failed.
        ArtifactError: it can't be opened, or the name is taken.
    """
    bundle = opened(source.release, home.releases(clock))
    if source.width is None and bundle.digest:
        raise ConfigError(f"{bundle.name} is published already and never changes; for a narrow variant give --width")
    publisher = Publisher(home=home, clock=clock, settings=source.settings, clean_of=cleaner_of, probe=source.probe)
    name = source.name
    if source.width is not None and name is None:
        name = f"{bundle.name}-{source.width}"
    with being_read(bundle.path):  # publishing clears away what is left, such as a candidate that was published before
        return publisher.publish(
            lambda folder: _fill(folder, bundle, source.width),
            name=name,
            provenance=_provenance(bundle, source.width),
            previous=served_release(home, clock),
            whole=None if source.width is None else bundle,
        )


def _fill(folder: Path, bundle: Bundle, width: Width | None) -> None:
    left_out = shutil.ignore_patterns(MANIFEST_NAME, Role.GATE_REPORT, PROVENANCE)
    shutil.copytree(bundle.path, folder, dirs_exist_ok=True, ignore=left_out)
    if width is not None:
        make_variant(bundle, folder, width)


def _provenance(bundle: Bundle, width: Width | None) -> dict[str, object]:
    """What the source knows of itself; for a variant also whose whole weights it has."""
    known = bundle.meta.get("provenance")
    if known is None:
        path = bundle.path / PROVENANCE
        known = _read(path) if path.exists() else {}
    made = {} if width is None else {"variant_of": bundle.name, "width": str(width), "whole_digest": bundle.digest}
    return {**known, **made}


def _read(path: Path) -> dict[str, object]:
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DamagedArtifactError(
            f"{path} does not say where the candidate is from ({error!r}); mend or remove it"
        ) from error
