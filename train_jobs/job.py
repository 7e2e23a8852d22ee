"""The job from data to release: prepare, train under supervision, evaluate, publish. Runs in the driver."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.artifacts.store import Artifact
from failsoft.errors import ArtifactMissingError, FailsoftError
from failsoft.health.clock import Clock, SystemClock
from failsoft.health.ledger import read_ledger
from failsoft.models.corpus import Corpus, CorpusReport
from failsoft.models.network import IntentNer, build
from failsoft.models.predictor import IntentNerPredictor, evaluate_predictor
from failsoft.training.checkpoints.checkpoint import newest_healthy, read_tensors, versions
from failsoft.training.checkpoints.driver_lock import sole_driver
from failsoft.training.letters.requeue import read_requeue
from failsoft.training.progress import Phase, ProgressFile
from failsoft.training.ray_train import RaySettings, run_attempt
from failsoft.training.state import load_model_tensors
from failsoft.training.summary import RunSummary, summarise
from failsoft.training.survival.notice import Notice, listening, passing_on
from failsoft.training.survival.supervise import RestartPolicy
from train_jobs.attempts import Attempts
from train_jobs.build import build_loop
from train_jobs.config import JobConfig
from train_jobs.publish import FinishedRun, publish_run
from train_jobs.workload import Workload, prepare


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """What came out."""

    run: str
    bundle: Bundle | None
    """The release; None when none was asked for."""
    quality: Mapping[str, Any]
    """On the test split: ``intent_accuracy``, ``slot_f1`` and more."""
    summary: RunSummary
    corpus_report: CorpusReport
    """What was repaired while reading the data."""
    weights_digest: str
    """Digest of the final training state's tensors: equal digests are bit-equal runs."""


def run_job(config: JobConfig) -> JobResult:
    """Train on the Ray that this process is connected to, and publish.

    Raises:
        ConfigError: another process is training this run; nothing was touched.
        FailsoftError: whatever stopped the run; the message says what to do.
    """
    home, clock = Home.find(config.home), SystemClock()
    config = replace(config, home=home.root)  # absolute: workers start in another folder
    with sole_driver(home.run(config.run)):
        progress = ProgressFile(home.run(config.run), clock)
        try:
            result = _run(config, home, clock, progress)
        except FailsoftError:
            progress.turn(Phase.STOPPED)
            raise
        progress.turn(Phase.FINISHED)
    return result


def weights_digest(checkpoint: Artifact) -> str:
    """Digest of a checkpoint's tensors."""
    return checkpoint.manifest.files["state.safetensors"].digest


def _run(config: JobConfig, home: Home, clock: Clock, progress: ProgressFile) -> JobResult:
    torch.set_num_threads(config.threads_per_worker)  # more threads than free cores make each step ten times slower
    progress.turn(Phase.PREPARING)
    corpus, workload = prepare(config)
    again = read_requeue(home.run(config.run))  # a finished run goes on with what people put back on its list
    batches = workload.total_batches + len(again)
    _train(config, batches, home, clock)
    progress.turn(Phase.EVALUATING)
    final = _final(config, batches, home, clock)
    model = _model(workload, final)
    quality = _quality(model, corpus, workload)
    bundle = None
    if config.publish:
        progress.turn(Phase.PUBLISHING)
        finished = FinishedRun(
            corpus=corpus,
            codec=workload.codec,
            labels=workload.labels,
            model=model,
            quality=quality,
            provenance=_provenance(config, workload, final) | {"corpus_repairs": dict(corpus.report.counts)},
        )
        bundle = _release(config, finished, home, clock)
    return JobResult(
        run=config.run,
        bundle=bundle,
        quality=quality,
        corpus_report=corpus.report,
        summary=summarise(read_ledger(home.ledger).events, run=config.run),
        weights_digest=weights_digest(final),
    )


def _train(config: JobConfig, batches: int, home: Home, clock: Clock) -> None:
    settings = RaySettings(
        folder=home.run(config.run),
        ledger=home.ledger,
        workers=config.workers,
        threads_per_worker=config.threads_per_worker,
        gpu=config.gpu,
    )
    attempts = Attempts(home=home, run=config.run, clock=clock, total_batches=batches)
    policy = RestartPolicy(backoff=config.backoff)
    notice = Notice()
    with listening(notice), passing_on(notice, settings.folder):
        attempts.until_done(
            lambda: run_attempt(build_loop, config, settings), policy=policy, rng=random.Random(config.seed)
        )


def _final(config: JobConfig, batches: int, home: Home, clock: Clock) -> Artifact:
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
