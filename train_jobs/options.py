"""What may be asked of the job in words: the options of ``python -m train_jobs.intent_ner``, and what they ask for.

``failsoft train`` has the same options by the same names (a test holds them together) and turns them into a job by the
same function.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from failsoft.artifacts.home import Home
from failsoft.durations import parse_duration_s
from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.faults import FaultPlan
from failsoft.training.escalation import Poisoned
from failsoft.training.pace.policy import RemedyPolicy
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from failsoft.training.survival.preflight import PreflightPolicy
from failsoft.training.survival.room import WorkerRange
from failsoft.training.survival.warmth import SparePolicy
from train_jobs.config import JobConfig, Preset

_ABOUT = "Train the intent and NER model and publish a release. Exit status: 0 finished, 143 told to leave, 3 and 4 "
_ABOUT += "stopped with a diagnosis, 1 anything else; 0 and 143 apart, the last line says what to do."


def parser() -> argparse.ArgumentParser:
    """Reads the job's command line."""
    made = argparse.ArgumentParser(prog="python -m train_jobs.intent_ner", description=_ABOUT)
    add = made.add_argument
    add("--home", type=Path, help="root of all files ($FAILSOFT_HOME, else .failsoft here)")
    add("--run", required=True, help="name of the run; the same name again goes on where it stopped")
    add("--data", type=Path, help="folder of a corpus; left out: the embedded corpus")
    add("--preset", type=Preset, choices=list(Preset), help="recipe; left out: what fits the corpus")
    crew = "a number, or the least and the most like 1:4; then the run has what the cluster can hold"
    add("--workers", default="1", metavar="N|MIN:MAX", help=crew)
    add("--threads", type=int, default=1, help="torch threads, and CPUs asked of Ray, per worker")
    add("--gpu", action="store_true", help="give each worker a GPU")
    add("--seed", type=int, default=7, help="of order, weights and dropout")
    add("--epochs", type=int, metavar="N", help="passes over the samples; left out: the recipe's")
    add("--max-batches", type=int, metavar="N", help="end after so many; left out: the recipe's epochs")
    add("--faults", default="[]", help="planned faults: a JSON list, or the path of a file with one")
    add("--first-wait", type=float, default=10.0, metavar="SECONDS", help="first back-off; then x 3")
    add("--record-consumed", action="store_true", help="keep sample ids for: failsoft verify")
    _add_keeping(made)
    _add_eyes(made)
    switch = argparse.BooleanOptionalAction
    add("--preflight", action=switch, default=True, help="look at each node before each attempt")
    add("--spares", action=switch, default=True, help="keep warm processes for a restart of the workers")
    add("--publish", action=switch, default=True, help="publish a release at the end")
    return made


def _add_keeping(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("--snapshot-every", type=int, default=100, metavar="STEPS", help="to RAM: what a rollback undoes at most")
    places, fates = list(SnapshotPlace), list(Poisoned)
    held = "whose RAM keeps a snapshot: each worker's all, worker 0's, or equal shares"
    add("--snapshot-place", type=SnapshotPlace, choices=places, default=places[0], help=held)
    fate = "batches that a rollback undid: passed over with dead letters, or met again"
    add("--poisoned", type=Poisoned, choices=fates, default=fates[0], help=fate)
    add("--checkpoint-every", type=int, default=2000, metavar="STEPS", help="to disk")
    add("--checkpoint-every-time", metavar="15m", help="also when so much time has passed")
    add("--checkpoint-at-epoch-end", action="store_true", help="also when an epoch is consumed")
    best = "instead at the interval that wastes least, with nodes that fail once in so long on average (failsoft plan)"
    add("--mtbf", metavar="30d", help=best)
    add("--keep-last", type=int, default=3, metavar="N", help="newest checkpoints that stay")
    add("--keep-best", type=int, default=1, metavar="N", help="lowest losses that also stay; 0: none")
    there = (
        "store for copies of checkpoints (s3://bucket/prefix, gs://…, file:///mnt/…); a fresh machine goes on from it"
    )
    add("--remote", metavar="URL", help=there)
    enough = "stop when no copy could be made for so long; left out: the local ones are enough to go on"
    add("--remote-stop-after", type=float, metavar="SECONDS", help=enough)


def _add_eyes(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    looks = "look at the validation split after so many updates; the best checkpoint is then the best by that"
    add("--validate-every", type=int, metavar="STEPS", help=looks)
    add("--validate-at-epoch-end", action="store_true", help="look at it when an epoch is consumed")
    board = "also follow the run there: tensorboard:FOLDER, mlflow:URI, wandb:PROJECT; may be given several times"
    add("--track", action="append", metavar="ADDRESS", help=board)
    relieved = "others take over part of a slow worker's samples, until it recovers; left out: it is only named"
    add("--relieve-slow-workers", action="store_true", help=relieved)


def config_of(given: argparse.Namespace) -> JobConfig:
    """The job that was asked for.

    Raises:
        ConfigError: something of it can't be meant.
    """
    return JobConfig(
        home=Home.find(given.home).root,
        run=given.run,
        data=given.data,
        preset=given.preset,
        workers=WorkerRange.parse(given.workers).given(),
        threads_per_worker=given.threads,
        gpu=given.gpu,
        seed=given.seed,
        epochs=given.epochs,
        max_batches=given.max_batches,
        faults=_faults(given.faults),
        backoff=BackoffPolicy(first_s=given.first_wait, cap_s=max(90.0, given.first_wait)),
        record_consumed=given.record_consumed,
        snapshot_every_steps=given.snapshot_every,
        snapshot_place=given.snapshot_place,
        poisoned=given.poisoned,
        checkpoint_every_steps=given.checkpoint_every,
        checkpoint_every_s=_seconds(given.checkpoint_every_time),
        checkpoint_at_epoch_end=given.checkpoint_at_epoch_end,
        node_mtbf_s=_seconds(given.mtbf),
        keep_last=given.keep_last,
        keep_best=given.keep_best,
        remote=given.remote,
        remote_stop_after_s=given.remote_stop_after,
        validate_every_steps=given.validate_every,
        validate_at_epoch_end=given.validate_at_epoch_end,
        track=tuple(given.track or ()),
        pace_remedy=RemedyPolicy() if given.relieve_slow_workers else None,
        preflight=PreflightPolicy() if given.preflight else None,
        spares=SparePolicy(per_worker=int(given.spares)),
        publish=given.publish,
    )


def _seconds(duration: str | None) -> float | None:
    return None if duration is None else parse_duration_s(duration)


def _faults(given: str) -> FaultPlan:
    if given.lstrip().startswith("["):
        return FaultPlan.from_json(given)
    try:
        return FaultPlan.from_json(Path(given).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f'the fault plan {given} can\'t be read: {error}; give a JSON list like [{{"kind": "nan_batch", '
            '"position": 40}], or a file with one'
        ) from error
