"""The dead letters of a run of the intent and NER job: their texts, their replay, and the way back into the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from failsoft.artifacts.home import Home
from failsoft.errors import ArtifactMissingError, ConfigError
from failsoft.health.clock import Clock
from failsoft.health.ledger import Event, Side, read_ledger
from failsoft.models.corpus import Utterance
from failsoft.training.batches import GlobalBatches
from failsoft.training.checkpoints.checkpoint import deliver_here
from failsoft.training.letters.fingerprints import device_of
from failsoft.training.letters.letterbook import LETTERS_FOLDER, LetterBook, read_letter_book
from failsoft.training.letters.rebuild import LoopRebuild
from failsoft.training.letters.replay import Replay, Replayer
from failsoft.training.letters.requeue import RequeueEntry, append_requeue, read_requeue
from failsoft.training.loop import Task, TrainLoop
from failsoft.training.progress import PositionMark, read_progress
from failsoft.training.ranks import SoloRank
from train_jobs.build import build_loop
from train_jobs.config import JobConfig
from train_jobs.workload import IntentNerTask, Workload, read_utterances, read_workload


@dataclass(frozen=True)
class JobLetters:
    """One run of the job, seen through its dead letters. Reads the run's folder; only :meth:`requeue` writes there."""

    home: Home
    run: str

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.home.run(self.run)

    @property
    def is_known(self) -> bool:
        """Whether the run is one of this job: its corpus lies in its folder. Another run's texts are not at hand."""
        return (self.folder / "prepared").is_dir()

    @property
    def way_to_start(self) -> str:
        """What starts the run again, so that it trains on its list."""
        return f"failsoft train --run {self.run}" if self.is_known else f"start run {self.run} again by its own script"

    @cached_property
    def book(self) -> LetterBook:
        """The letters as they are now."""
        return read_letter_book(self.folder / LETTERS_FOLDER)

    @cached_property
    def workload(self) -> Workload:
        """The corpus, as its workers read it.

        Raises:
            ArtifactMissingError: the run is none of this job.
        """
        if not self.is_known:
            raise ArtifactMissingError(
                f"run {self.run!r} in {self.home.runs} is no run of failsoft train, so it can't be built again from "
                "here; replay it from its own code with failsoft.training.letters.replay.Replayer"
            )
        return read_workload(self._config(gpu=False))

    @cached_property
    def utterances(self) -> list[Utterance]:
        """All training samples by index; empty for a run of another job."""
        return read_utterances(self._config(gpu=False)) if self.is_known else []

    def samples(self, indices: Sequence[int]) -> list[Utterance]:
        """The samples at these indices, as far as they are known."""
        known = self.utterances
        return [known[index] for index in indices if index < len(known)]

    def global_indices(self, position: int) -> tuple[int, ...]:
        """All samples of a batch over all ranks, in order."""
        workload, entries = self.workload, read_requeue(self.folder)
        again = position - workload.total_batches
        if 0 <= again < len(entries):
            return entries[again].sample_indices
        batches = GlobalBatches(
            num_samples=workload.num_samples,
            global_batch=workload.recipe.batch_size,
            seed=int(workload.identity["seed"]),
        )
        return tuple(batches.global_indices(position).tolist())

    def requeue(self, position: int, *, without: Sequence[str], why: str, clock: Clock) -> RequeueEntry:
        """Put a dead batch on the run's list.

        Args:
            position: of the batch.
            without: samples to leave out, by index or by name.
            why: for the record.
            clock: tells when.

        Raises:
            ConfigError: it can't be; says why and what to do.
        """
        if not self.is_known and PositionMark(self.folder).read() is None and read_progress(self.folder) is None:
            raise ConfigError(
                f"run {self.run!r} was trained by a trainer that does not read this list (only failsoft's own training "
                f"loop does); put the samples back into its data: failsoft dlq show {self.run} {position}"
            )
        return append_requeue(
            self.folder,
            position,
            at_s=clock.wall_s(),
            without=[self._index_of(sample) for sample in without],
            why=why,
            global_indices=self.global_indices(position) if self.is_known else None,
        )

    def replay(
        self,
        position: int,
        *,
        max_walk: int,
        watch: Callable[[int, int], object] = lambda _done, _total: None,
        say: Callable[[str], object] = lambda _what: None,
    ) -> Replay:
        """Meet a dead batch again and say what was to blame.

        Args:
            position: of the batch.
            max_walk: batches that may be walked again to reach the state that it met.
            watch: told how far the walk is.
            say: told what is done next.

        Raises:
            ConfigError: no letter is of this position.
            ArtifactError: the run is none of this job, or its corpus is damaged.
        """
        self.book.of_batch(position)  # the cheap error first
        replayer = Replayer(
            rebuild=self.rebuild(), book=self.book, events=self._events(), max_walk=max_walk, watch=watch, say=say
        )
        return replayer.replay(position)

    def rebuild(self) -> LoopRebuild:
        """The run, to be built again; on a GPU when it trained on one and one is here."""
        workload = self.workload
        trained_on_gpu = any("cuda" in (letter.generators or {}) for letter in self.book.letters)
        config = self._config(gpu=trained_on_gpu and torch.cuda.is_available())
        config = replace(config, seed=int(workload.identity["seed"]))

        def build(seed: int | None) -> TrainLoop:
            chosen = config if seed is None else replace(config, seed=seed)
            return build_loop(chosen, SoloRank(), deliver_here)

        def task(model: nn.Module) -> Task:
            return IntentNerTask(model, workload, device_of(model))

        return LoopRebuild(build=build, task=task)

    def _config(self, *, gpu: bool) -> JobConfig:
        return JobConfig(home=self.home.root, run=self.run, gpu=gpu)

    def _events(self) -> list[Event]:
        events = read_ledger(self.home.ledger).events
        return [event for event in events if event.side is Side.TRAINING and event.subject == self.run]

    def _index_of(self, sample: str) -> int:
        if sample.lstrip("-").isdecimal():
            return int(sample)
        for index, utterance in enumerate(self.utterances):
            if utterance.id == sample:
                return index
        raise ConfigError(f"no training sample is called {sample!r}; see: failsoft dlq show {self.run} POSITION")
