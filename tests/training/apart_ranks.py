"""One of two ranks of a sharded run that share no storage: ``python -m … RANK FOLDER URL``; prints JSON lines.

Each rank has a folder of its own; only the remote store at ``URL`` is everybody's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from failsoft.artifacts.manifest import Manifest
from failsoft.artifacts.remote_place import place_of
from failsoft.artifacts.remote_store import RemoteStore
from failsoft.errors import ConfigError, FailsoftError
from failsoft.health.backoff import BackoffPolicy
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.checkpoints.mirror import mirror_behind
from failsoft.training.checkpoints.mirror_policy import MirrorPolicy
from failsoft.training.checkpoints.retention import Last
from failsoft.training.loop import TrainLoop
from tests.training.sharded_toys import buffers, differing, everything, group, sharded_loop

POLICY = MirrorPolicy(backoff=BackoffPolicy(first_s=0.1, cap_s=0.2))
Seen = dict[str, Any]


def apart(folder: Path, url: str, disk: str) -> tuple[TrainLoop, list[list[str]]]:
    """The sharded toy run on a disk that only this rank sees; and what was brought for each restore."""
    loop = sharded_loop(folder / f"{disk}-{dist.get_rank()}")
    old, clock = loop.checkpoints, loop.desk.clock
    loop.checkpoints = Checkpoints(
        store=old.store,
        identity=old.identity,
        ranks=old.ranks,
        ledger=old.ledger,
        writer=old.writer,
        mirror=mirror_behind(old.store, url, clock, rules=(Last(count=2),), policy=POLICY),
    )
    finder, brought = loop.checkpoints._apart, list[list[str]]()
    forget = finder.forget

    def seen_and_forgotten() -> None:
        if finder._folder.exists():
            brought.append(sorted(path.name for path in finder._folder.iterdir()))
        forget()

    finder.forget = seen_and_forgotten  # type: ignore[method-assign]
    return loop, brought


def there(url: str) -> list[str]:
    """What counts on the remote store, whole and verified, once both ranks are done and before either goes on."""
    dist.barrier()
    remote = RemoteStore(place_of(url), kind="checkpoint")
    shelf = remote.shelf()
    assert [remote.verify(one) for one in shelf.there] == [None] * len(shelf.there)
    dist.barrier()
    return sorted(one.name for one in shelf.there)


def undisturbed(folder: Path, url: str) -> Seen:
    loop, _ = apart(folder, url, "first")
    loop.run()
    torch.save(everything(loop.state) | buffers(loop.state), folder / f"ended-{dist.get_rank()}.pt")
    here = sorted(path.name for path in loop.checkpoints.store.root.glob("position-*"))
    return {"there": there(url), "here": here}


def again(folder: Path, url: str) -> Seen:
    """On two empty machines, from what lies remotely before the end."""
    if dist.get_rank() == 0:
        remote = RemoteStore(place_of(url), kind="checkpoint")
        remote.remove(next(one.folder for one in remote.shelf().there if one.manifest.meta["position"] == 24))
    dist.barrier()
    loop, brought = apart(folder, url, "second")
    loop.run()
    now = everything(loop.state) | buffers(loop.state)
    left = list(loop.checkpoints.store.root.glob(".parts-*"))
    expected = torch.load(folder / f"ended-{dist.get_rank()}.pt", weights_only=True)
    return {"brought": brought, "left": len(left), "differs": differing(now, expected), "there": there(url)}


def withdrawn(folder: Path, url: str) -> Seen:
    """Back to the one before the newest, which is undone: nobody may go on from it."""
    loop, _ = apart(folder, url, "third")
    newest = loop.checkpoints.restore(loop.state, seed=3)
    before = loop.checkpoints.restore(loop.state, seed=3, before_step=20)
    gone = loop.checkpoints.withdraw(after=16) if dist.get_rank() == 0 else []
    next_one = loop.checkpoints.restore(loop.state, seed=3)
    loop.checkpoints.finish(within_s=60.0)
    loop.checkpoints.close()
    found = [None if one is None else one.position for one in (newest, before, next_one)]
    return {"found": found, "gone": gone, "there": there(url)}


def in_trouble(folder: Path, url: str) -> Seen:
    """Rank 1 alone can't take part, at each moment at which it works by itself; both ranks meet again afterwards."""
    said: dict[str, str] = {}
    for name, breaks in {"whole": manifest_gone, "needed": model_of_no_use}.items():
        loop, _ = apart(folder, url, f"trouble-{name}")
        if dist.get_rank() == 1:
            breaks(loop)
        try:
            loop.checkpoints.restore(loop.state, seed=3)
        except (FailsoftError, OSError) as error:
            said[name] = f"{type(error).__name__}: {error}"
        loop.checkpoints.close()
        there(url)
    return {"said": said}


def manifest_gone(loop: TrainLoop) -> None:
    """Between the last byte that was brought and the look at what it is."""
    finder, calls = loop.checkpoints._apart, list[int]()
    read = finder._manifest

    def gone() -> Manifest:
        calls.append(1)
        if len(calls) > 1:
            raise FileNotFoundError("manifest.json is gone")
        return read()

    finder._manifest = gone  # type: ignore[method-assign]


def model_of_no_use(loop: TrainLoop) -> None:
    """What this rank is to hold can't be worked out."""

    def refused() -> Manifest:
        raise ConfigError("the model lies as no checkpoint does")

    loop.checkpoints._apart._manifest = refused  # type: ignore[method-assign]


def other_size(folder: Path, url: str) -> Seen:
    """One rank takes on what two have written; it has all storage to itself, so it brings a whole copy."""
    loop, _ = apart(folder, url, "alone")
    restored = loop.checkpoints.restore(loop.state, seed=3)
    loop.checkpoints.close()
    return {"position": restored and restored.position, "files": len(list(loop.checkpoints.store.root.glob("*/*")))}


def main(rank: int, folder: Path, url: str) -> None:
    torch.set_num_threads(1)
    with group(folder / "group", rank, 2):
        for scene in (undisturbed, again, withdrawn, in_trouble):
            print(json.dumps({"scene": scene.__name__} | scene(folder, url)), flush=True)
    if rank == 0:
        with group(folder / "alone", 0, 1):
            print(json.dumps({"scene": "other_size"} | other_size(folder, url)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
