"""What one may ask of ``failsoft train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from failsoft.training.escalation import Poisoned
from failsoft.training.snapshots.snapshot_place import SnapshotPlace

DataOption = Annotated[
    Path | None, typer.Option(help="Folder with SNIPS or CLINC150 JSON files; the embedded corpus without it.")
]
RunOption = Annotated[str, typer.Option(help="Name of the run; the same name again goes on where it stopped.")]
WorkersOption = Annotated[
    str, typer.Option(metavar="N|MIN:MAX", help="Ray Train workers: a number, or a range like 1:4.")
]
ThreadsOption = Annotated[int, typer.Option(min=1, help="Threads of each worker.")]
PresetOption = Annotated[str | None, typer.Option(help="demo, embedded or snips; by default what fits the data.")]
SeedOption = Annotated[int, typer.Option(help="Seed of order, weights and dropout.")]
FaultsOption = Annotated[
    str, typer.Option(help='Planned faults, JSON like [{"kind": "nan_batch", "position": 40}]; for drills only.')
]
SnapshotPlaceOption = Annotated[
    SnapshotPlace, typer.Option(help="Whose RAM keeps a snapshot: each worker's all, worker 0's, equal shares.")
]
PoisonedOption = Annotated[
    Poisoned, typer.Option(help="Batches that a rollback undid: passed over with dead letters, or met again.")
]
RemoteOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Copies of checkpoints: s3://bucket/prefix, gs://…, file:///mnt/…; a fresh machine goes on from them.",
    ),
]
ValidateOption = Annotated[
    int | None, typer.Option(min=1, metavar="STEPS", help="Look at the validation split after so many updates.")
]
RelieveOption = Annotated[
    bool,
    typer.Option("--relieve-slow-workers", help="Others take over part of a slow worker's samples; else it is named."),
]
RecordConsumedOption = Annotated[
    bool, typer.Option("--record-consumed", help="Keep the ids of all batches, for: failsoft verify.")
]
PreflightOption = Annotated[
    bool, typer.Option("--preflight/--no-preflight", help="Look at each node before each attempt.")
]
