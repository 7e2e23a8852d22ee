"""Looking into the checkpoints of a run without torch: what is there, whether it is whole, what two differ in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.artifacts.manifest import Manifest, read_manifest, verify_files
from failsoft.artifacts.store import Artifact, ArtifactStore, Damage
from failsoft.errors import ArtifactError, ArtifactMissingError, DamagedArtifactError
from failsoft.health.json_object import json_value
from failsoft.training.checkpoints.formats import SCALARS, SHARDS, read_scalars
from failsoft.training.checkpoints.tensor_source import TensorSource, open_tensors

NEWEST = "newest"
_NO_DIFFERENCE = frozenset({"rng", "format", SHARDS})


def position_of(manifest: Manifest) -> float:
    """Global batches consumed: what orders checkpoints."""
    return float(manifest.meta.get("position", -1))


def is_healthy(manifest: Manifest) -> bool:
    """Whether its writer found every number finite."""
    return manifest.meta.get("healthy") is True


def is_in_shards(manifest: Manifest) -> bool:
    """Whether its tensors lie in a file of each rank."""
    return manifest.meta.get(SHARDS) is not None


def tensor_files(manifest: Manifest) -> list[str]:
    """Names of the files that hold its tensors."""
    return sorted(name for name in manifest.files if name.endswith(".safetensors"))


def only(manifest: Manifest, files: Collection[str]) -> Manifest:
    """What a manifest says of some of its files, its parts included; what it says of all of them no longer fits.

    Raises:
        DamagedArtifactError: it does not name one of them.
    """
    absent = sorted(set(files) - manifest.files.keys())
    if absent:
        raise DamagedArtifactError(f"the manifest names no {', '.join(absent)}")
    parts = {name: moment for name, moment in (manifest.meta.get("parts") or {}).items() if name in files}
    entries = {name: entry for name, entry in manifest.files.items() if name in files}
    return replace(manifest, files=entries, meta=dict(manifest.meta) | {"parts": parts})


def newest_healthy(store: ArtifactStore, *, on_damage: Damage = lambda _name, _why: None) -> Artifact | None:
    """The newest whole and healthy checkpoint by position, for readers outside the run; quarantines damaged ones."""
    return store.newest(order=position_of, accept=is_healthy, on_damage=on_damage)


def ordered(store: ArtifactStore) -> list[Artifact]:
    """Every checkpoint whose manifest reads, oldest first by position; files are not verified."""
    return sorted(store.listing(), key=lambda artifact: position_of(artifact.manifest))


def size_bytes(artifact: Artifact) -> int:
    """Bytes of its files."""
    return sum(entry.size_bytes for entry in artifact.manifest.files.values())


def find(store: ArtifactStore, asked: str) -> Artifact:
    """A checkpoint by its name, by its position, or as ``newest``; its files are not verified.

    Raises:
        ArtifactMissingError: none of them fits.
    """
    there = ordered(store)
    if asked == NEWEST and there:
        return there[-1]
    for artifact in there:
        if artifact.name == asked or (asked.isdecimal() and position_of(artifact.manifest) == int(asked)):
            return artifact
    known = ", ".join(artifact.name for artifact in there) or "none"
    raise ArtifactMissingError(f"no checkpoint {asked!r} in {store.root}; there: {known}")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What reading every byte of one folder found."""

    name: str
    damage: str | None
    """None when every byte is as it was written."""


def verify_all(store: ArtifactStore) -> list[Finding]:
    """Read every byte of every checkpoint. Nothing is moved or removed."""
    folders = sorted(path for path in _folders(store.root) if path.name[0] != "." and path.name != "quarantine")
    return [Finding(name=path.name, damage=_damage(path)) for path in folders]


def _folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _damage(folder: Path) -> str | None:
    try:
        verify_files(folder, read_manifest(folder))
        read_scalars((folder / SCALARS).read_bytes(), where=str(folder / SCALARS))
        open_tensors(folder).refuse_gaps()
    except (ArtifactError, OSError) as error:
        return str(error)
    return None


def scalars_of(artifact: Artifact) -> dict[str, Any]:
    """Its ``state.json`` in today's form."""
    path = artifact.path / SCALARS
    return read_scalars(path.read_bytes(), where=str(path))


def group_of(name: str) -> str:
    """The part of the state that a tensor belongs to: ``model/<module>`` or ``optimizer/<moment>``."""
    part, _, rest = name.partition("/")
    return f"{part}/{rest.rsplit('/', 1)[-1] if part == 'optimizer' else rest.split('.', 1)[0]}"


@dataclass(frozen=True, kw_only=True)
class Change:
    """How far one part of the state moved from one checkpoint to the other."""

    group: str
    tensors: int
    largest: float
    """The largest relative change of a tensor of the group: |b - a| / |a| in the Euclidean norm; inf from zero."""
    tensor: str
    """Which tensor that is."""
    equal: int
    """Tensors that are the same bit for bit."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What two checkpoints differ in."""

    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    reshaped: Mapping[str, tuple[str, str]]
    """Kind and shape on both sides, where they differ."""
    changes: tuple[Change, ...]
    scalars: Mapping[str, tuple[Any, Any]]
    """Small values that differ, by their path in ``state.json``; generators aside."""


def difference(a: Artifact, b: Artifact) -> Difference:
    """Compare two checkpoints tensor by tensor; needs memory for two tensors at a time.

    Raises:
        DamagedArtifactError: a file is torn.
    """
    left, right = open_tensors(a.path), open_tensors(b.path)
    both = [name for name in left if name in right.specs]
    reshaped = {name: (_form(left, name), _form(right, name)) for name in both if left.specs[name] != right.specs[name]}
    return Difference(
        only_a=tuple(name for name in left if name not in right.specs),
        only_b=tuple(name for name in right if name not in left.specs),
        reshaped=reshaped,
        changes=tuple(_changes(left, right, [name for name in both if name not in reshaped])),
        scalars=_scalar_difference(scalars_of(a), scalars_of(b)),
    )


def _form(file: TensorSource, name: str) -> str:
    spec = file.specs[name]
    return f"{spec.dtype} {list(spec.shape)}"


def _changes(left: TensorSource, right: TensorSource, names: Sequence[str]) -> list[Change]:
    groups: dict[str, list[tuple[float, str]]] = {}
    for name in names:
        groups.setdefault(group_of(name), []).append((relative_change(left.read(name), right.read(name)), name))
    return [_change(group, found) for group, found in sorted(groups.items())]


def _change(group: str, found: list[tuple[float, str]]) -> Change:
    worst = max(found, key=lambda entry: np.inf if np.isnan(entry[0]) else entry[0])
    equal = sum(change == 0.0 for change, _ in found)
    return Change(group=group, tensors=len(found), largest=worst[0], tensor=worst[1], equal=equal)


def relative_change(a: NDArray[Any], b: NDArray[Any]) -> float:
    """|b - a| / |a| in the Euclidean norm; 0 for equal bits, inf from zero to something, NaN where either holds NaN."""
    if a.tobytes() == b.tobytes():
        return 0.0
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    before, after = a.astype(wide).ravel(), b.astype(wide).ravel()
    with np.errstate(invalid="ignore", over="ignore"):
        size, moved = float(np.linalg.norm(before)), float(np.linalg.norm(after - before))
    return moved / size if size else float("inf" if moved else 0.0)


def _scalar_difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    left, right = _leaves(a), _leaves(b)
    names = [name for name in sorted(left.keys() | right.keys()) if left.get(name) != right.get(name)]
    return {name: (left.get(name), right.get(name)) for name in names}


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping):
        pairs = [(str(key), entry) for key, entry in value.items() if path or key not in _NO_DIFFERENCE]
    elif isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        pairs = [(str(index), entry) for index, entry in enumerate(value)]
    else:
        return {path: value}
    found: dict[str, Any] = {}
    for key, entry in pairs:
        found |= _leaves(entry, f"{path}.{key}" if path else key)
    return found


def described(artifact: Artifact) -> dict[str, Any]:
    """One checkpoint in words and numbers, as plain JSON."""
    scalars, file = scalars_of(artifact), open_tensors(artifact.path)
    groups: dict[str, dict[str, int]] = {}
    for name in file:
        entry = groups.setdefault(group_of(name), {"tensors": 0, "bytes": 0})
        entry["tensors"] += 1
        entry["bytes"] += file.specs[name].size_bytes
    return {
        "name": artifact.name,
        "meta": dict(artifact.manifest.meta),
        "created_at_s": artifact.manifest.created_at_s,
        "format": json_value((artifact.path / SCALARS).read_bytes()).get("format", 1),
        "files": {name: entry.size_bytes for name, entry in artifact.manifest.files.items()},
        "learning_rates": [group.get("lr") for group in scalars.get("optimizer_groups", [])],
        "world": len(scalars.get("rng", [])),
        "identity": scalars.get("identity"),
        "versions": scalars.get("versions"),
        "tensors": groups,
    }
