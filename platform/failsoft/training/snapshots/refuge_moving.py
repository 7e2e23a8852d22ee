"""Brings snapshots in memory of a host to the hosts where their ranks are now.

Ray gives ranks to nodes anew with each group of workers: on two equal nodes it changed their places in one of fourteen
groups here, spread over them (SPREAD) in five. Each rank would then look in vain for what it left on the other node,
and the whole run would go by disk although nothing is lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from failsoft.training.ranks import Ranks
from failsoft.training.snapshots.refuge import Refuge
from failsoft.training.snapshots.refuge_folder import Body
from failsoft.training.snapshots.refuge_note import Moment, Note, checksum, parse_note

_PIECE_BYTES = 32 * 1024 * 1024
"""Travels at once: no collective takes long, and ranks that only look on need no more memory than this."""

OnHost = Mapping[int, Sequence[Moment]]
"""By rank, the moments of its snapshots that lie on a host."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """A rank's snapshot that lies elsewhere."""

    rank: int
    carrier: int
    """A rank on the host where it lies."""
    moment: Moment


def bring_home(refuge: Refuge | None, ranks: Ranks, *, newer_than: int) -> list[Route]:
    """Copy the newest snapshot that is whole over all hosts to where its ranks are. All ranks call it together.

    Args:
        refuge: of this rank; None where it has none, and then nobody's is moved.
        ranks: of the run.
        newer_than: position of the newest checkpoint; what is older is not worth the way.

    Returns:
        What was on the wrong host, the same on all ranks; a copy that failed is no snapshot there.
    """
    if ranks.world == 1:
        return []
    here = {} if refuge is None else refuge.on_host()
    said = None if refuge is None else {rank: [asdict(note.moment) for note in notes] for rank, notes in here.items()}
    told = [json.loads(text) for text in ranks.gather(json.dumps(said))]
    if refuge is None or any(entry is None for entry in told):
        return []
    moments = [{int(rank): [Moment(**one) for one in found] for rank, found in entry.items()} for entry in told]
    ways = routes(moments, newer_than=newer_than)
    for way in ways:
        note = next((one for one in here.get(way.rank, ()) if one.moment == way.moment), None)
        _carry(way, note if way.carrier == ranks.rank else None, refuge, ranks)
    return ways


def routes(on_hosts: Sequence[OnHost], *, newer_than: int) -> list[Route]:
    """What has to be moved so that every rank has its snapshot of the newest moment that is there at all. Pure.

    Args:
        on_hosts: by rank, what lies on its host.
        newer_than: position; older moments are none.
    """
    world = range(len(on_hosts))
    there = [{moment for found in on_hosts for moment in found.get(rank, ())} for rank in world]
    common = [moment for moment in set.intersection(*there) if moment.position > newer_than]
    if not common:
        return []
    best = max(common, key=lambda one: (one.position, one.step, one.number, one.group))
    away = [rank for rank in world if best not in on_hosts[rank].get(rank, ())]
    carriers = {rank: next(host for host in world if best in on_hosts[host].get(rank, ())) for rank in away}
    return [Route(rank=rank, carrier=carriers[rank], moment=best) for rank in away]


def _carry(way: Route, note: Note | None, refuge: Refuge, ranks: Ranks) -> None:
    """One rank's; all ranks take part.

    Args:
        way: from where to where.
        note: on the carrier.
        refuge: of this rank.
        ranks: of the run.
    """
    leaving = None
    if note is not None:
        with suppress(OSError):  # gone meanwhile: nothing is carried
            note, leaving = _leaving(note, refuge)
    text = note.as_bytes().decode() if note is not None and leaving is not None else ""
    coming = parse_note(ranks.gather(text)[way.carrier].encode())
    if coming is None:
        return
    landing = _landing(coming, refuge) if way.rank == ranks.rank else None
    body = leaving or landing
    _broadcast(coming.size_bytes, None if body is None else body.numbers, way.carrier, ranks)
    if landing is not None:
        with suppress(OSError):  # no room for the note: then it is no snapshot
            refuge.folder.write_note(replace(coming, body=landing.path.name))


def _leaving(note: Note, refuge: Refuge) -> tuple[Note, Body]:
    """A snapshot that is here, with a checksum for the way.

    Raises:
        OSError: it is gone, or was touched while it was summed up: a rank's place on another host than its new one is
            locked by nobody here, and the worker that left it may not be quite dead.
    """
    for folder in (refuge.folder, *refuge.folder.others()):
        if folder.rank == note.owner.rank:
            body = folder.old_body(note.body, note.size_bytes)
            summed = note if note.checksum else replace(note, checksum=checksum(body.numbers))
            if note.moment in (other.moment for other in folder.notes() if other.body == note.body):
                return summed, body  # its note goes before a number is touched
    raise FileNotFoundError(f"this snapshot of rank {note.owner.rank} is here no more")


def _landing(note: Note, refuge: Refuge) -> Body | None:
    try:
        return refuge.landing(note)
    except OSError:  # no room: the others must not wait for this rank, and go by disk with it
        return None


def _broadcast(size_bytes: int, numbers: NDArray[np.uint8] | None, carrier: int, ranks: Ranks) -> None:
    aside = np.empty(min(size_bytes, _PIECE_BYTES) if numbers is None else 0, np.uint8)
    for at in range(0, size_bytes, _PIECE_BYTES):
        stop = min(at + _PIECE_BYTES, size_bytes)
        piece = aside[: stop - at] if numbers is None else numbers[at:stop]
        ranks.broadcast_(torch.from_numpy(piece), carrier)
