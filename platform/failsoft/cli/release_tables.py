"""Tables about releases."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from failsoft.artifacts.bundle import Bundle
    from failsoft.release.shelf import Standing


def listing(standings: Sequence[Standing], foreign: dict[str, str]) -> Table:
    """One line for each release, newest last, and those that another failsoft wrote."""
    table = Table("release", "published", "size", "waived", "stays as", title="releases", title_justify="left")
    for standing in standings:
        manifest = standing.artifact.manifest
        table.add_row(
            escape(standing.artifact.name),
            at(manifest.created_at_s),
            f"{standing.size_bytes / 1e6:.2f} MB",
            escape(", ".join(manifest.meta.get("waived") or {}) or "–"),
            escape(", ".join(standing.kept_for) or "nothing; gc removes it"),
        )
    for name, why in foreign.items():
        table.add_row(escape(name), "?", "?", "?", escape(why))
    return table


def as_json(standings: Sequence[Standing]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {
            "release": standing.artifact.name,
            "digest": standing.artifact.manifest.digest,
            "published_at": at(standing.artifact.manifest.created_at_s),
            "size_bytes": standing.size_bytes,
            "waived": dict(standing.artifact.manifest.meta.get("waived") or {}),
            "kept_for": list(standing.kept_for),
        }
        for standing in standings
    ]


def details(bundle: Bundle) -> Table:
    """What a release says of itself."""
    table = Table("what", "value", title=escape(f"release {bundle.name}"), title_justify="left")
    for name, value in facts(bundle):
        table.add_row(escape(name), escape(value))
    return table


def facts(bundle: Bundle) -> Iterator[tuple[str, str]]:
    """Name and value of each thing that is known; what an older format did not hold says so."""
    from failsoft.artifacts.bundle import Role
    from failsoft.models.narrow import stored_as

    yield "digest", bundle.digest
    yield "before it", bundle.previous or "none"
    if bundle.own_model and not bundle.has(Role.WEIGHTS):
        yield "weights", "in files of an own model"
    else:
        stored = stored_as(bundle.part(Role.WEIGHTS))
        yield "weights", "whole" if stored.width is None else f"{stored.width}, of {stored.of}"
    if not bundle.own_model or bundle.has(Role.CALIBRATION):
        yield "calibration", f"temperature {bundle.calibration().temperature:.4g}"
    yield from _healthy(bundle)
    for name, value in dict(bundle.meta.get("provenance") or {}).items():
        yield f"provenance: {name}", str(value)
    for gate, reason in dict(bundle.meta.get("waived") or {}).items():
        yield f"waived: {gate}", str(reason)


def _healthy(bundle: Bundle) -> Iterator[tuple[str, str]]:
    """Baseline and golden inputs; an own model may have been published without, and says then what is not armed."""
    from failsoft.artifacts.bundle import Role

    if bundle.own_model and not bundle.has(Role.BASELINE):
        yield "healthy baseline", "; ".join(bundle.meta.get("not_armed", ())) or "not recorded"
        return
    baseline = bundle.baseline()
    for name, value in vars(baseline).items():
        if name == "label_mix":
            shares = sorted(baseline.label_mix.items(), key=lambda item: -item[1])
            yield "healthy label mix", ", ".join(f"{label} {share:.1%}" for label, share in shares)
        else:
            known = value is not None and math.isfinite(value)
            yield f"healthy {name.replace('_', ' ')}", f"{value:.4g}" if known else "not recorded"
    yield "golden inputs", str(len(bundle.golden()))


def at(wall_s: float) -> str:
    """A time in UTC."""
    return f"{datetime.fromtimestamp(wall_s, tz=UTC):%Y-%m-%d %H:%M:%S}"
