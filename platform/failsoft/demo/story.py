"""The whole story in one go: train under faults, publish, serve, break, degrade, return, report."""

from __future__ import annotations

import json
import shutil
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from failsoft.artifacts.home import Home
from failsoft.demo.answers import Seen, phase_numbers, stage_timeline
from failsoft.demo.incident import incident_numbers
from failsoft.demo.picture import draw_incident
from failsoft.demo.report import Table, write_report
from failsoft.demo.serving_act import Script, ServingAct
from failsoft.demo.tables import incident_table, phases_table, stages_table, to_rich, training_table
from failsoft.demo.traffic import Question, SteadyTraffic
from failsoft.demo.training_act import faults_for, train_with_progress
from failsoft.demo.waiting import until_interrupted
from failsoft.demo.waves import WAVES
from failsoft.errors import ConfigError, GateError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import read_ledger
from failsoft.local_ray import local_ray
from failsoft.models.corpora import load_corpus
from failsoft.models.corpus import Corpus
from failsoft.models.recipe import recipe_for
from failsoft.training.summary import RunSummary, summarise
from train_jobs.config import JobConfig
from train_jobs.job import JobResult

RATE_HZ = 40.0
"""About half of what two gateways, two models, their client and Ray can do on two cores."""
_DEADLINE_MS = 1500.0
"""Patient: what is late because this machine is slow, or busy with other things, is not the incident."""
RUN = "demo"
_SEED = 7
_PHASES = ("healthy", *WAVES, "healthy again", "incident", "after")


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """What may be chosen about the demo."""

    data: Path | None = None
    """Folder of SNIPS or CLINC150; None trains on the embedded corpus."""
    out: Path = Path("build/demo")
    """Emptied first; holds the home folder, report.html and incident.png."""
    keep: bool = False
    """Leave it serving until Ctrl-C."""
    port: int = 0
    """Port on 127.0.0.1; 0 takes a free one."""


def run_demo(config: DemoConfig, console: Console) -> None:
    """Run the demo; every number is measured in this run.

    Raises:
        FailsoftError: a part did not do what it must; the message says which.
    """
    clock = SystemClock()
    started_s = clock.monotonic_s()
    home = _fresh_home(config.out)
    with local_ray(num_cpus=4):
        console.rule("[bold]1 · Train while a NaN burst and a SIGKILL strike")
        corpus = load_corpus(config.data, seed=_SEED)
        result = _train(home, corpus, config, console)
        summary = summarise(read_ledger(home.ledger).events, run=RUN)
        training = training_table(summary, result.quality)
        console.print(to_rich(training))
        console.rule("[bold]2 · Serve, break the model, watch")
        seen, script = _serve(home, corpus, config, console)
        tables = [training, *_serving_tables(seen, script)]
        _report(config.out, seen, script, tables)
        _write_summary(config.out, seen, script, summary)
        for table in tables[1:]:
            console.print(to_rich(table))
    console.print(f"report: {config.out / 'report.html'} · picture: {config.out / 'incident.png'}")
    console.print(f"ledger: {home.ledger} · all in {clock.monotonic_s() - started_s:.0f} s")


def _fresh_home(out: Path) -> Home:
    marker = out / ".failsoft-demo"
    if out.exists() and any(out.iterdir()) and not marker.exists():
        raise ConfigError(f"{out} holds files that no demo wrote; give --out a folder that is empty or does not exist")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    marker.touch()
    return Home.find(out / "home")


def _train(home: Home, corpus: Corpus, config: DemoConfig, console: Console) -> JobResult:
    total = recipe_for(corpus.name).total_steps(corpus.num_samples)
    job = JobConfig(
        home=home.root,
        run=RUN,
        data=config.data,
        seed=_SEED,
        faults=faults_for(total),
        snapshot_every_steps=20,
        checkpoint_every_steps=50,
    )
    console.print(f"{corpus.name}: {len(corpus.train)} training texts, {total} global batches, planned faults:")
    for fault in job.faults.faults:
        console.print(f"  batch {fault.position}: {fault.kind}")
    console.print("[dim](a line marked (raylet) below is Ray's own report of the kill)[/dim]")
    result = train_with_progress(job, console)
    if result.bundle is None:
        raise GateError(f"run {RUN} published no release; see {home.ledger}")
    console.print(f"gated and published: release [bold]{result.bundle.name}[/bold]")
    return result


def _serve(home: Home, corpus: Corpus, config: DemoConfig, console: Console) -> tuple[list[Seen], Script]:
    from serve_apps.intent_ner import ServeSettings  # noqa: PLC0415 -- Serve reads its settings when it is loaded
    from serve_apps.runtime import start  # noqa: PLC0415

    settings = ServeSettings(
        home=home.root, profile="drill", gateways=2, deadline_ms=_DEADLINE_MS, allow_planned_faults=True
    )
    with console.status("starting two gateways, two models, the fallback and the controller"):
        running = start(settings, port=config.port or _free_port())
    console.print(f"serving at {running.url} · profile [bold]drill[/bold]: rests and stages last seconds, not minutes")
    try:
        seen, script = _play(running.url, home, corpus, console)
        if config.keep:
            _keep(running.url, home, console)
    finally:
        running.stop()
    return seen, script


def _play(url: str, home: Home, corpus: Corpus, console: Console) -> tuple[list[Seen], Script]:
    clock = SystemClock()
    questions = [Question(text=utterance.text, intent=utterance.intent) for utterance in corpus.test]
    traffic = SteadyTraffic(url, questions, clock, rate_hz=RATE_HZ, seed=_SEED)
    traffic.start()
    try:
        script = ServingAct(traffic=traffic, home=home, clock=clock, console=console).play()
    finally:
        traffic.stop()
    return traffic.seen, script


def _serving_tables(seen: list[Seen], script: Script) -> list[Table]:
    phases = [summed for phase in _PHASES if (summed := phase_numbers(phase, seen)) is not None]
    numbers = incident_numbers(seen, broken_at_s=script.broken_at_s)
    return [phases_table(phases), incident_table(numbers, seen, script), stages_table(seen)]


def _report(out: Path, seen: list[Seen], script: Script, tables: list[Table]) -> None:
    picture = out / "incident.png"
    draw_incident(seen, script.marks, picture)
    lead = (
        f"Steady traffic of {RATE_HZ:.0f} requests a second against two gateway replicas, profile drill (rests and "
        "stages of seconds). Times are the client's. Everything was measured in this run."
    )
    title = "failsoft demo: an incident and its end"
    write_report(out / "report.html", title=title, lead=lead, picture=picture, tables=tables)


def _write_summary(out: Path, seen: list[Seen], script: Script, summary: RunSummary) -> None:
    """The same numbers for programs."""
    numbers = incident_numbers(seen, broken_at_s=script.broken_at_s)
    body = {
        "training": asdict(summary),
        "incident": asdict(numbers),
        "requests": len(seen),
        "lost": sum(one.lost for one in seen),
        "stages": [stage for _, stage in stage_timeline(seen)],
        "return_s": script.returned_at_s - script.mended_at_s,
    }
    (out / "summary.json").write_text(json.dumps(body, indent=1), "utf-8")


def _keep(url: str, home: Home, console: Console) -> None:
    console.print(f"still serving at {url}; in another terminal: failsoft status --url {url}")
    console.print(f"operator: failsoft degrade --url {url} --home {home.root} --why '…'. Ctrl-C stops it.")
    until_interrupted(console)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
