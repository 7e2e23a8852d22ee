"""Which file of a checkpoint holds which piece of which tensor. Pure; loads no torch.

In ``state.json`` of a sharded checkpoint, under ``shards``::

    {"files": ["shard-00000-of-00002.safetensors", …],
     "tensors": {"model/0.weight": {"dtype": "F32", "shape": [7, 4], "mesh": [2], "placements": ["S(0)"],
                                    "pieces": [[0, [0, 0], [4, 4]], [1, [4, 0], [3, 4]]]}, …},
     "own": ["model/1.running_mean", …]}

A piece is (number of the file, offset, size). Of tensors that are alike on all ranks one file holds all; of those in
``own`` (buffers, which drift apart between ranks) each file holds its rank's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from failsoft.errors import ConfigError, DamagedArtifactError
from failsoft.training.boxes import Box, Piece, Read, reads_for, refuse_gaps
from failsoft.training.checkpoints.landing import Landing
from failsoft.training.checkpoints.tensor_file import TensorSpec


@dataclass(frozen=True, kw_only=True)
class ShardPlace:
    """One rank's part of a checkpoint that is being written."""

    rank: int
    world: int
    attempt: str
    """Drawn anew by each group of workers, so that nothing of an earlier one is mixed in."""
    landing: Landing | None = None
    """Where the shards meet when the ranks share no storage; None: in the run's folder."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ShardPlace:
        """From plain data, as ``asdict`` gives it."""
        landing = plain.get("landing")
        return cls(**(dict(plain) | {"landing": None if landing is None else Landing(**landing)}))

    @property
    def leads(self) -> bool:
        """It is the rank whose writer binds all shards."""
        return self.rank == 0

    @property
    def file(self) -> str:
        """Its file."""
        return shard_file(self.rank, self.world)

    @property
    def files(self) -> list[str]:
        """Of all ranks."""
        return [shard_file(rank, self.world) for rank in range(self.world)]


def shard_file(rank: int, world: int) -> str:
    """Name of a rank's file."""
    return f"shard-{rank:05d}-of-{world:05d}.safetensors"


@dataclass(frozen=True, kw_only=True)
class Held:
    """What one rank has of one tensor."""

    spec: TensorSpec
    """Of the whole tensor."""
    box: Box
    writes: bool
    """This rank writes it."""
    own: bool = False
    mesh: tuple[int, ...] = ()
    placements: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """JSON that :meth:`from_plain` reads back."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Held:
        """From plain data."""
        spec, box = plain["spec"], plain["box"]
        return cls(
            spec=TensorSpec(dtype=spec["dtype"], shape=tuple(spec["shape"])),
            box=Box(offset=tuple(box["offset"]), size=tuple(box["size"])),
            writes=bool(plain["writes"]),
            own=bool(plain["own"]),
            mesh=tuple(plain["mesh"]),
            placements=tuple(plain["placements"]),
        )


@dataclass(frozen=True, kw_only=True)
class TensorShards:
    """One tensor."""

    spec: TensorSpec
    pieces: tuple[Piece, ...]
    mesh: tuple[int, ...] = ()
    placements: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """As ``state.json`` says it."""
        pieces = [[piece.file, list(piece.box.offset), list(piece.box.size)] for piece in self.pieces]
        kind: dict[str, Any] = {"dtype": self.spec.dtype, "shape": list(self.spec.shape)}
        return kind | {"mesh": list(self.mesh), "placements": list(self.placements), "pieces": pieces}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> TensorShards:
        """What :meth:`to_plain` gave."""
        return cls(
            spec=TensorSpec(dtype=str(plain["dtype"]), shape=tuple(plain["shape"])),
            pieces=tuple(
                Piece(file=int(file), box=Box(offset=tuple(offset), size=tuple(size)))
                for file, offset, size in plain["pieces"]
            ),
            mesh=tuple(plain["mesh"]),
            placements=tuple(plain["placements"]),
        )


@dataclass(frozen=True, kw_only=True)
class ShardLayout:
    """All of a checkpoint's tensors."""

    files: tuple[str, ...]
    tensors: Mapping[str, TensorShards]
    own: frozenset[str] = field(default=frozenset())

    @classmethod
    def of_one_file(cls, file: str, specs: Mapping[str, TensorSpec]) -> ShardLayout:
        """Of a checkpoint that is not sharded."""
        tensors = {
            name: TensorShards(spec=spec, pieces=(Piece(file=0, box=Box.whole(spec.shape)),))
            for name, spec in specs.items()
        }
        return cls(files=(file,), tensors=tensors)

    def to_plain(self) -> dict[str, Any]:
        """As ``state.json`` says it."""
        tensors = {name: shards.to_plain() for name, shards in self.tensors.items()}
        return {"files": list(self.files), "tensors": tensors, "own": sorted(self.own)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], *, where: str) -> ShardLayout:
        """What :meth:`to_plain` gave.

        Raises:
            DamagedArtifactError: it is something else.
        """
        try:
            tensors = {str(name): TensorShards.from_plain(entry) for name, entry in plain["tensors"].items()}
            files = tuple(str(file) for file in plain["files"])
            layout = cls(files=files, tensors=tensors, own=frozenset(plain["own"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedArtifactError(f"{where} does not say which shard holds what: {error!r}") from error
        wrong = [name for name, one in tensors.items() if any(not 0 <= p.file < len(files) for p in one.pieces)]
        if wrong:
            raise DamagedArtifactError(f"{where} says that pieces of {wrong[0]} lie in a file that it does not name")
        return layout

    def reads(self, name: str, wanted: Box, *, rank: int, world: int) -> list[Read]:
        """What a rank must read of a tensor.

        Args:
            name: of a tensor that there is.
            wanted: what the rank is to hold.
            rank: this one; of an ``own`` tensor it reads its own, unless there is another number of ranks now: then
                all ranks read that of rank 0.
            world: how many ranks there are now.

        Raises:
            DamagedArtifactError: the pieces leave a gap.
        """
        pieces: Sequence[Piece] = self.tensors[name].pieces
        if name in self.own:
            mine = rank if world == len(self.files) else 0
            pieces = [piece for piece in pieces if piece.file == mine]
        return reads_for(wanted, pieces, name=name)

    def refuse_gaps(self) -> None:
        """Refuse a layout whose pieces are not exactly the tensors.

        Raises:
            DamagedArtifactError: naming the first tensor that is not.
        """
        for name, tensor in self.tensors.items():
            for group in [[one] for one in tensor.pieces] if name in self.own else [tensor.pieces]:
                refuse_gaps(tensor.spec.shape, group, name=name)


def merged(told: Sequence[Mapping[str, Held]], files: Iterable[str]) -> ShardLayout:
    """The layout of a checkpoint from what each rank holds, by rank.

    Raises:
        ConfigError: the ranks hold different tensors, or together not all of one.
    """
    for rank, mine in enumerate(told):
        differ = sorted(mine.keys() ^ told[0].keys()) or sorted(
            name for name, held in mine.items() if held.spec != told[0][name].spec
        )
        if differ:
            raise ConfigError(
                f"rank {rank} holds other tensors than rank 0, so they make no checkpoint together: "
                f"{', '.join(differ[:8])}; build model and optimizer alike on all ranks"
            )
    tensors = {name: _together(name, told) for name in told[0]}
    own = frozenset(name for name, held in told[0].items() if held.own)
    layout = ShardLayout(files=tuple(files), tensors=tensors, own=own)
    try:
        layout.refuse_gaps()
    except DamagedArtifactError as error:
        raise ConfigError(f"{error}; shard the model over all ranks of the run, or over none") from error
    return layout


def _together(name: str, told: Sequence[Mapping[str, Held]]) -> TensorShards:
    first = told[0][name]
    pieces = (
        Piece(file=rank, box=mine[name].box)
        for rank, mine in enumerate(told)
        if mine[name].writes and mine[name].box.numel
    )
    return TensorShards(spec=first.spec, pieces=tuple(pieces), mesh=first.mesh, placements=first.placements)
