"""One of four processes that are ranks of sharded runs: ``python -m … RANK FOLDER``; prints JSON of what it saw.

The processes form groups of one to four ranks in turn: a run of two goes on at other sizes, and comes back.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from failsoft.errors import ConfigError, IncompatibleArtifactError
from failsoft.health.faults import FaultKind, FaultPlan, burst
from failsoft.training.checkpoints.checkpoint import newest_healthy
from failsoft.training.checkpoints.reading import read_tensors
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from tests.training.sharded_toys import PLAN, Shards, buffers, differing, everything, group, sharded_loop

Seen = dict[str, Any]


def undisturbed(folder: Path) -> Seen:
    """A whole run of two."""
    loop = sharded_loop(folder / "whole")
    loop.run()
    kept = everything(loop.state) | buffers(loop.state)
    torch.save(kept, folder / f"whole-{dist.get_rank()}.pt")
    return {"step": loop.state.step}


def resumed(folder: Path) -> Seen:
    """From the middle of it, as after a kill: every file that came later is gone, and so is memory."""
    if dist.get_rank() == 0:
        shutil.copytree(folder / "whole" / "checkpoints" / "position-000000000008", _shelf(folder / "resumed"))
    dist.barrier()
    loop = sharded_loop(folder / "resumed")
    loop.run()
    expected = torch.load(folder / f"whole-{dist.get_rank()}.pt", weights_only=True)
    return {"differs": differing(everything(loop.state) | buffers(loop.state), expected)}


def to_disk(folder: Path) -> Seen:
    """Inside a run, back to a checkpoint before the newest."""
    loop = sharded_loop(folder / "whole")
    loop.checkpoints.restore(loop.state, seed=3)
    newest = everything(loop.state)
    mark = loop.checkpoints.restore(loop.state, seed=3, before_step=20, keep_counts=True)
    older = read_tensors(loop.checkpoints.store.open("position-000000000016"))
    now = everything(loop.state)
    moved = bool(differing(newest, now))
    return {"step": mark and mark.step, "moved": moved, "differs": differing(now, {name: older[name] for name in now})}


def rolled_back(folder: Path, place: SnapshotPlace) -> Seen:
    """A burst of bad batches leads back to a snapshot of shards."""
    plan = replace(PLAN, snapshots=replace(PLAN.snapshots, where=place))
    loop = sharded_loop(
        folder / f"burst-{place}", plan=plan, faults=FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=6, count=5))
    )
    kept: Seen = {}
    take, restore = loop._snapshots.take, loop._snapshots.restore

    def taken() -> str | None:
        ill = take()
        kept["then"] = everything(loop.state) | buffers(loop.state)
        return ill

    def gone_back() -> object:
        kept["moved"] = differing(everything(loop.state), kept["then"])
        mark = restore()
        kept["differs"] = differing(everything(loop.state) | buffers(loop.state), kept["then"])
        return mark

    loop._snapshots.take, loop._snapshots.restore = taken, gone_back  # type: ignore[method-assign,assignment]
    loop.run()
    moved, ended = bool(kept["moved"]), loop.state.position
    return {"differs": kept["differs"], "moved": moved, "rollbacks": loop.breaker.rollbacks, "position": ended}


def other_size(folder: Path, name: str, *, of: str = "whole", shard: Shards = Shards.OVER_ALL) -> Seen:
    """The newest checkpoint of a run, restored at the size of this group, saved again under ``name``."""
    source = newest_healthy(sharded_loop(folder / of).checkpoints.store)
    assert source is not None
    if dist.get_rank() == 0:
        shutil.copytree(source.path, _shelf(folder / name, source.name))
    dist.barrier()
    loop = sharded_loop(folder / name, shard=shard)
    restored = loop.checkpoints.restore(loop.state, seed=3)
    expected = {key: one for key, one in read_tensors(source).items() if key not in buffers(loop.state)}
    differs = differing(everything(loop.state), expected)
    loop.state.position += 1
    loop.checkpoints.publish(loop.state, {})
    loop.checkpoints.close()
    again = newest_healthy(loop.checkpoints.store)
    assert again is not None
    saved = {key: one for key, one in read_tensors(again).items() if key in expected}
    files, meshes = sorted(again.manifest.files), (again.manifest.meta.get("shards") or {}).get("meshes")
    return {"meshes": meshes} | {
        "from": restored is not None,
        "differs": differs,
        "saved": differing(saved, expected),
        "files": files,
    }


def back(folder: Path) -> Seen:
    """From two ranks to one and back to two: against the checkpoint that all began with."""
    shelves = (sharded_loop(folder / run).checkpoints.store for run in ("whole", "two", "shards"))
    began, *ended = (newest_healthy(store) for store in shelves)
    assert began is not None
    own = buffers(sharded_loop(folder / "whole").state)
    first = {name: one for name, one in read_tensors(began).items() if name not in own}
    differs = [
        differing({name: one for name, one in read_tensors(end).items() if name not in own}, first)
        for end in ended
        if end is not None
    ]
    return {"differs": differs}


def other_model(folder: Path) -> Seen:
    """A checkpoint of another model is refused on all ranks, by names and whole shapes."""
    shape = torch.nn.Linear(4, 9)
    loop = sharded_loop(folder / "whole")
    model = torch.nn.Sequential(shape)
    fully_shard(model)
    loop.state.model = model
    try:
        loop.checkpoints.restore(loop.state, seed=3)
    except IncompatibleArtifactError as error:
        return {"said": str(error)}
    return {"said": ""}


def parted(folder: Path) -> Seen:
    """Only rank 0 has something to keep that the others lack."""
    loop = sharded_loop(folder / "parted")
    if dist.get_rank() == 0:
        loop.state.model.register_buffer("mine", torch.zeros(1))
    try:
        loop.checkpoints.submit(loop.state, {})
    except ConfigError as error:
        return {"said": str(error)}
    finally:
        loop.checkpoints.close()
    return {"said": ""}


def _shelf(run: Path, name: str = "position-000000000008") -> Path:
    return run / "checkpoints" / name


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    scenes: list[tuple[int, str, Callable[[], Seen]]] = [
        (2, "undisturbed", lambda: undisturbed(folder)),
        (2, "resumed", lambda: resumed(folder)),
        (2, "to disk", lambda: to_disk(folder)),
        (2, "rolled back", lambda: rolled_back(folder, SnapshotPlace.EACH_RANK)),
        (2, "rolled back, shared", lambda: rolled_back(folder, SnapshotPlace.SHARDED)),
        (2, "other model", lambda: other_model(folder)),
        (2, "parted", lambda: parted(folder)),
        (3, "two to three", lambda: other_size(folder, "three")),
        (4, "two to two by two", lambda: other_size(folder, "mesh", shard=Shards.IN_TWO_COPIES)),
        (2, "two by two to two", lambda: other_size(folder, "again", of="mesh")),
        (1, "two to one", lambda: other_size(folder, "one")),
        (1, "two to none", lambda: other_size(folder, "none", shard=Shards.NONE)),
        (2, "one to two", lambda: other_size(folder, "two", of="one")),
        (2, "none to two", lambda: other_size(folder, "shards", of="none")),
        (2, "back", lambda: back(folder)),
    ]
    for number, (world, name, scene) in enumerate(scenes):
        if rank < world:
            with group(folder / f"group-{number}", rank, world):
                print(json.dumps({"name": name} | scene()), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
