"""The job from data to release: prepare, train, evaluate, publish. Runs in the process that is connected to Ray."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.artifacts.remote_place import Place, place_of
from failsoft.artifacts.store import Artifact
from failsoft.errors import ArtifactMissingError
from failsoft.health.clock import Clock, SystemClock
from failsoft.health.ledger import read_ledger
from failsoft.models.corpus import Corpus
from failsoft.models.network import IntentNer, build
from failsoft.models.predictor import IntentNerPredictor, evaluate_predictor
from failsoft.training.checkpoints.checkpoint import newest_healthy, read_tensors, versions
from failsoft.training.checkpoints.driver_lock import sole_driver, sole_trainer
from failsoft.training.checkpoints.remote_note import remote_of_run
from failsoft.training.letters.requeue import read_requeue
from failsoft.training.progress import Phase, ProgressFile
from failsoft.training.ray_demand import Demand
from failsoft.training.ray_leftovers import sweep_leftovers
from failsoft.training.ray_preflight import preflight
from failsoft.training.ray_room import rooms_here
from failsoft.training.ray_train import RaySettings, run_attempt
from failsoft.training.ray_trouble import lost_to_ray
from failsoft.training.state import load_model_tensors
from failsoft.training.summary import summarise
from failsoft.training.survival.notice import Notice, listening, passing_on
from failsoft.training.survival.room import NodeRoom
from train_jobs.build import build_loop
from train_jobs.config import JobConfig
from train_jobs.connect import is_submitted
from train_jobs.exporting import exporting
from train_jobs.publish import FinishedRun, publish_run
from train_jobs.remote import look_at_remote
from train_jobs.result import JobResult
from train_jobs.supervised import carry_through
from train_jobs.workload import Workload, prepare

__all__ = ["HereDriver", "JobResult", "run_job", "settings_of", "weights_digest"]


def run_job(config: JobConfig) -> JobResult:
    """Train on the Ray that this process is connected to, and publish; all in this process.

    ``train_jobs.supervise`` does the same with the workers held by a child, which may die.

    Raises:
        ConfigError: another process is training this run; nothing was touched.
        FailsoftError: whatever stopped the run; the message says what to do.
    """
    home, clock = Home.find(config.home), SystemClock()
    config = replace(config, home=home.root)  # absolute: workers start in another folder
    folder, notice = home.run(config.run), Notice()
    alone = sole_trainer(folder, clock, patience_s=0.0)
    with sole_driver(folder), alone, listening(notice), passing_on(notice, folder), exporting(config):
        return carry_through(config, HereDriver(config, clock), clock=clock, heard=lambda: notice.heard is not None)


class HereDriver:
    """Holds the workers in this process, which is connected to Ray by the first attempt."""

    def __init__(self, config: JobConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._home = Home.find(config.home)
        self._progress = ProgressFile(self._home.run(config.run), clock)
        self._made: tuple[Corpus, Workload] | None = None
        self._looked = False
        self._demand = Demand()

    def start(self) -> None:
        """Make the run's folder ready, or find it ready.

        Raises:
            DriverLostError: storage, network or Ray were away just then; that costs an attempt.
            FailsoftError: the data can't be read, the folder is another run's, or the remote store can't be used.
        """
        with lost_to_ray("the preparation of the run"):
            self.look_at_remote()
            self._prepared()
        sweep()

    def look_at_remote(self) -> None:
        """Once for each process.

        Raises:
            ConfigError: the remote store that the job names can't be used.
        """
        find = self._find_remote()
        if find is not None and not self._looked:
            look_at_remote(find, self._config, self._clock)
        self._looked = True

    def _find_remote(self) -> Callable[[], Place] | None:
        remote = self._config.remote
        return None if remote is None else lambda: place_of(remote_of_run(remote, self._config.run))

    def excluded(self) -> frozenset[str]:
        """Nodes that a preflight finds unfit, now or lately; nobody when none is wanted."""
        policy, faults = self._config.preflight, self._config.node_faults
        if policy is None:
            return frozenset()
        with lost_to_ray("the preflight"):
            return preflight(settings_of(self._config), policy=policy, faults=faults).excluded

    def rooms(self) -> tuple[NodeRoom, ...] | None:
        """As Ray and the nodes say."""
        return rooms_here()

    def wish(self, workers: int, excluded: frozenset[str]) -> None:
        """By Ray's own means; a private Ray has no autoscaler."""
        if not is_submitted(os.environ):
            return
        with lost_to_ray("the demand for workers"):
            if workers == 0:
                self._demand.withdraw()
            else:
                self._demand.wish(replace(settings_of(self._config), workers=workers, excluded=excluded))

    def attempt(self, workers: int, excluded: frozenset[str]) -> str | None:
        """One attempt of Ray Train."""
        settings = replace(settings_of(self._config), workers=workers, excluded=excluded)
        return run_attempt(build_loop, self._config, settings)

    def finish(self) -> JobResult:
        """Evaluate and publish."""
        with lost_to_ray("evaluation and release"):
            return self._finished()

    def _finished(self) -> JobResult:
        corpus, workload = self._prepared()
        config, home = self._config, self._home
        self._progress.turn(Phase.EVALUATING)
        final = _final(config, workload, home, self._clock)
        model = _model(workload, final)
        quality = _quality(model, corpus, workload)
        bundle = None
        if config.publish:
            self._progress.turn(Phase.PUBLISHING)
            finished = FinishedRun(
                corpus=corpus,
                codec=workload.codec,
                labels=workload.labels,
                model=model,
                quality=quality,
                provenance=_provenance(config, workload, final) | {"corpus_repairs": dict(corpus.report.counts)},
            )
            bundle = _release(config, finished, home, self._clock)
        return JobResult(
            run=config.run,
            bundle=bundle,
            quality=quality,
            corpus_report=corpus.report,
            summary=summarise(read_ledger(home.ledger).events, run=config.run),
            weights_digest=weights_digest(final),
        )

    def _prepared(self) -> tuple[Corpus, Workload]:
        if self._made is None:
            torch.set_num_threads(self._config.threads_per_worker)  # more than free cores make a step ten times slower
            self._progress.turn(Phase.PREPARING)
            self._made = prepare(self._config)
        return self._made


def sweep() -> None:
    """Of an attempt before: its workers are gone, and their places would be missed.

    Raises:
        DriverLostError: Ray does not answer.
    """
    with lost_to_ray("the sweep of left-over workers"):
        sweep_leftovers()


def settings_of(config: JobConfig) -> RaySettings:
    """How the job sits on Ray; its ``home`` is absolute."""
    home = Home.find(config.home)
    return RaySettings(
        folder=home.run(config.run),
        ledger=home.ledger,
        threads_per_worker=config.threads_per_worker,
        gpu=config.gpu,
        fabric=config.fabric,
        watch=config.watch,
        notice=config.notice,
        spares=config.spares,
    )


def weights_digest(checkpoint: Artifact) -> str:
    """Digest of a checkpoint's tensors."""
    return checkpoint.manifest.files["state.safetensors"].digest


def _final(config: JobConfig, workload: Workload, home: Home, clock: Clock) -> Artifact:
    batches = workload.total_batches + len(read_requeue(home.run(config.run)))
    final = newest_healthy(home.checkpoints(config.run, clock))
    if final is None or final.manifest.meta["position"] < batches:
        raise ArtifactMissingError(f"the last checkpoint of run {config.run!r} is not whole any more; start it again")
    return final


def _model(workload: Workload, final: Artifact) -> IntentNer:
    model = build(workload.network)
    load_model_tensors(model, read_tensors(final))
    return model.eval()


def _quality(model: IntentNer, corpus: Corpus, workload: Workload) -> dict[str, Any]:
    predictor = IntentNerPredictor(model, workload.codec, workload.labels)
    return dict(evaluate_predictor(predictor, corpus.test).as_dict())


def _release(config: JobConfig, finished: FinishedRun, home: Home, clock: Clock) -> Bundle:
    """Publish, or find what an earlier start of the same run has published."""
    name = f"{config.run}-{finished.provenance['weights_digest'].partition(':')[2][:8]}"
    releases = home.releases(clock)
    if any(release.name == name for release in releases.listing()):
        return Bundle.of(releases.open(name))
    return publish_run(finished, home=home, clock=clock, name=name)


def _provenance(config: JobConfig, workload: Workload, final: Artifact) -> dict[str, Any]:
    return {
        "run": config.run,
        "checkpoint": final.name,
        "checkpoint_digest": final.manifest.digest,
        "weights_digest": weights_digest(final),
        "recipe": asdict(workload.recipe),
        "corpus": workload.identity["corpus"],
        "corpus_digest": workload.identity["corpus_digest"],
        "seed": config.seed,
        "workers": config.workers,
        "versions": versions(),
    }
