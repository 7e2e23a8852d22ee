"""What one may ask of ``failsoft train``: the options of the job (``train_jobs.options``), by the same names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from failsoft.cli.completion import complete_run
from failsoft.training.escalation import Poisoned
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from train_jobs.config import Preset

DataOption = Annotated[
    Path | None, typer.Option(help="Folder with SNIPS or CLINC150 JSON files; the embedded corpus without it.")
]
RunOption = Annotated[
    str,
    typer.Option(help="Name of the run; the same name again goes on where it stopped.", autocompletion=complete_run),
]
WorkersOption = Annotated[
    str, typer.Option(metavar="N|MIN:MAX", help="Ray Train workers: a number, or a range like 1:4.")
]
ThreadsOption = Annotated[int, typer.Option(min=1, help="Threads of each worker.")]
PresetOption = Annotated[Preset | None, typer.Option(help="A recipe; by default what fits the data.")]
SeedOption = Annotated[int, typer.Option(help="Seed of order, weights and dropout.")]
FaultsOption = Annotated[
    str,
    typer.Option(help='Planned faults, JSON like [{"kind": "nan_batch", "position": 40}], or a file; for drills only.'),
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
TrackOption = Annotated[
    list[str] | None,
    typer.Option(metavar="ADDRESS", help="Also follow it: tensorboard:FOLDER, mlflow:URI, wandb:PROJECT; repeatable."),
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
GpuOption = Annotated[bool, typer.Option("--gpu", help="Give each worker a GPU.")]
EpochsOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Passes over the samples; by default the recipe's.")
]
MaxBatchesOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="End after so many; by default the recipe's epochs.")
]
FirstWaitOption = Annotated[float, typer.Option(metavar="SECONDS", help="First wait before a restart; then x 3.")]
SnapshotEveryOption = Annotated[
    int, typer.Option(min=1, metavar="STEPS", help="Snapshots in RAM: what a rollback undoes at most.")
]
CheckpointEveryOption = Annotated[int, typer.Option(min=1, metavar="STEPS", help="Checkpoints on disk.")]
CheckpointTimeOption = Annotated[str | None, typer.Option(metavar="15m", help="Also when so much time has passed.")]
CheckpointEpochOption = Annotated[
    bool, typer.Option("--checkpoint-at-epoch-end", help="Also when an epoch is consumed.")
]
MtbfOption = Annotated[
    str | None,
    typer.Option(
        metavar="30d", help="Instead as often as wastes least, with nodes that fail once in so long: failsoft plan."
    ),
]
KeepLastOption = Annotated[int, typer.Option(min=1, metavar="N", help="Newest checkpoints that stay.")]
KeepBestOption = Annotated[int, typer.Option(min=0, metavar="N", help="Lowest losses that also stay.")]
RemoteStopOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Stop when no copy could be made for so long; else it goes on.")
]
ValidateEpochOption = Annotated[
    bool, typer.Option("--validate-at-epoch-end", help="Look at the validation split when an epoch is consumed.")
]
SparesOption = Annotated[bool, typer.Option("--spares/--no-spares", help="Keep warm processes for a restart.")]
PublishOption = Annotated[bool, typer.Option("--publish/--no-publish", help="Publish a release at the end.")]
SubmitOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Hand it to the Ray cluster whose dashboard is there, as in http://127.0.0.1:8265."
    ),
]
WorkingDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="With --submit: upload it for the job to run in. A checkout that is here; else nothing."
    ),
]
FollowOption = Annotated[
    bool, typer.Option("--follow/--no-follow", help="With --submit: show its log and end as it ends.")
]
StopOnInterruptOption = Annotated[
    bool, typer.Option("--stop-on-interrupt", help="With --submit: Ctrl-C stops the job; else the job goes on.")
]
