"""The parts of a checkpoint, each with the moment that it says it is of. All must say the same as the manifest.

Digests bind the very bytes; this finds what no digest can: a part that was whole, but of another step, when the
manifest was made (memory that was filled again too early, files put together by hand).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from failsoft.errors import IncompatibleArtifactError
from failsoft.health.json_object import is_count, json_object
from failsoft.training.checkpoints.formats import SCALARS, TENSORS
from failsoft.training.checkpoints.tensor_file import STAMP_PLACE, Stamp, stamp_in

Stamps = Mapping[str, Stamp | None]
"""By file; None where a file does not say, as in forms before 3."""


def stamps_in(tensors: memoryview, scalars: memoryview, *, tensors_file: str = TENSORS) -> Stamps:
    """What both parts say while they are still in memory; a shard may come without the small one."""
    found: dict[str, Stamp | None] = {tensors_file: stamp_in(bytes(tensors[: STAMP_PLACE.stop]))}
    return found if not len(scalars) else found | {SCALARS: _stamp_of_scalars(bytes(scalars))}


def stamps_of(folder: Path, files: Iterable[str] = (TENSORS,)) -> Stamps:
    """What all parts say on disk.

    Args:
        folder: of the checkpoint.
        files: its tensor files.
    """
    found: dict[str, Stamp | None] = {}
    for file in files:
        with (folder / file).open("rb") as content:
            found[file] = stamp_in(content.read(STAMP_PLACE.stop))
    return found | {SCALARS: _stamp_of_scalars((folder / SCALARS).read_bytes())}


def in_words(stamps: Stamps) -> dict[str, Any]:
    """For the manifest: each part with its moment."""
    return {name: asdict(stamp) for name, stamp in stamps.items() if stamp is not None}


def refuse_mixed(meta: Mapping[str, Any], stamps: Stamps, *, where: str) -> None:
    """Refuse parts of different steps.

    Args:
        meta: of the manifest: ``position``, ``step``, and ``parts`` as :func:`in_words` gave them.
        stamps: what the parts themselves say.
        where: the folder, for the message.

    Raises:
        IncompatibleArtifactError: naming each part and its moment.
    """
    promised = {"position": meta.get("position"), "step": meta.get("step")}
    said = in_words(stamps)
    bound = meta.get("parts") or {}
    wrong = [name for name, moment in said.items() if not _same(moment, promised) or moment != bound.get(name, moment)]
    silent = [name for name in bound if name not in said]
    if wrong or silent:
        parts = "; ".join(f"{name} says {said.get(name, 'nothing')}" for name in (*wrong, *silent))
        raise IncompatibleArtifactError(
            f"{where} binds parts of different steps: its manifest says {promised}, {parts}; remove it and resume from "
            "the one before"
        )


def _same(moment: Mapping[str, Any], promised: Mapping[str, Any]) -> bool:
    """Old manifests may lack the step."""
    return all(promised[name] is None or moment[name] == promised[name] for name in promised)


def _stamp_of_scalars(content: bytes) -> Stamp | None:
    body = json_object(content) or {}
    position, step = body.get("position"), body.get("step")
    return Stamp(position=position, step=step) if is_count(position) and is_count(step) else None
