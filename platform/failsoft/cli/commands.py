"""The commands of every day: demo, gate and serve. They parse, wire and print; no logic lives here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, app, console
from failsoft.local_ray import local_ray, settle_environment


@app.command()
def demo(
    data: Annotated[
        Path | None, typer.Option(help="Folder with SNIPS or CLINC150 JSON files; the embedded corpus without it.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for report.html and incident.png.")] = Path("build/demo"),
    keep: Annotated[bool, typer.Option("--keep", help="Leave it serving at the end, until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(help="Port of the gateway on 127.0.0.1; 0 picks a free one.")] = 0,
) -> None:
    """Train under faults, publish, serve, break the model, watch it degrade and return. About four minutes."""
    settle_environment()
    from failsoft.demo.story import DemoConfig, run_demo

    run_demo(DemoConfig(data=data, out=out, keep=keep, port=port), console)


@app.command()
def gate(
    bundle: Annotated[str, typer.Argument(help="Name of a published release, or a folder.")],
    traffic: Annotated[
        Path | None, typer.Option(help="File with recent texts of callers, one a line; else validation texts.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    home: HomeOption = None,
) -> None:
    """Judge a release: coverage, spread of answers, quantization, golden inputs. Exit code 2 when it must not serve."""
    from failsoft.release.report import print_report
    from train_jobs.gate import gate_release, read_traffic

    texts = None if traffic is None else read_traffic(traffic)
    with console.status(f"measuring {bundle}") as line:
        report = gate_release(bundle, home=Home.find(home), traffic=texts, watch=line.update)
    if json_:
        console.print_json(report.to_json())
    else:
        print_report(report, console)
    if not report.passed:
        raise typer.Exit(code=2)


@app.command()
def serve(
    release: Annotated[
        str | None, typer.Option(help="Release to serve first; the newest published one without it.")
    ] = None,
    profile: Annotated[str, typer.Option(help="production (minutes) or drill (seconds).")] = "production",
    gateways: Annotated[int, typer.Option(min=1, help="Gateway replicas.")] = 2,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8000,
    home: HomeOption = None,
) -> None:
    """Serve a release behind the three nets, on a private Ray on this machine, until Ctrl-C."""
    from failsoft.demo.waiting import until_interrupted

    with local_ray(num_cpus=4):
        from serve_apps.intent_ner import settings_of
        from serve_apps.runtime import start

        given = {"home": Home.find(home).root, "release": release, "profile": profile, "gateways": gateways}
        settings = settings_of(given)
        with console.status("starting gateways, models, fallback and controller"):
            running = start(settings, port=port)
        try:
            console.print(f"serving at [bold]{running.url}[/bold] · profile {profile} · docs at {running.url}/docs")
            body = '{"text": "play some jazz"}'
            console.print(f"next: curl {running.url}/v1/predict -H 'content-type: application/json' -d '{body}'")
            console.print(f"      failsoft status --url {running.url}")
            until_interrupted(console)
        finally:
            running.stop()
