"""``failsoft serve``: a release behind the three nets on this machine. It parses, wires and prints."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, app, console
from failsoft.ingress import LOOPBACK, Entry, Ingress, entry
from failsoft.local_ray import local_ray

_SLOW_MS = 25.0
"""A tenth of the deadline of a whole answer."""


@app.command()
def serve(
    release: Annotated[
        str | None, typer.Option(help="Release to serve first; the newest published one without it.")
    ] = None,
    profile: Annotated[str, typer.Option(help="production (minutes) or drill (seconds).")] = "production",
    gateways: Annotated[int, typer.Option(min=1, help="Gateway replicas.")] = 2,
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = LOOPBACK,
    ingress: Annotated[
        Ingress | None, typer.Option(help="Serve's own proxy, or HAProxy; the fast one where it can be had.")
    ] = None,
    home: HomeOption = None,
) -> None:
    """Serve a release behind the three nets, on a private Ray on this machine, until Ctrl-C."""
    from failsoft.demo.waiting import until_interrupted
    from failsoft.health.clock import SystemClock
    from failsoft.serving.ingress_watch import IngressProbe, P99Watch
    from failsoft.serving.start_up import check_start

    root = Home.find(home)
    for remark in check_start(root, host=host, port=port):
        console.print(f"[yellow]mind:[/yellow] {remark}", highlight=False)
    with entry(ingress, host=host) as way, way.in_force(), local_ray(num_cpus=4):
        from serve_apps.intent_ner import settings_of
        from serve_apps.runtime import start

        settings = settings_of({"home": root.root, "release": release, "profile": profile, "gateways": gateways})
        with console.status("starting gateways, models, fallback and controller"):
            running = start(settings, port=port, host=host)
        try:
            _say_hello(running.url, running.first_status, way, profile)
            with IngressProbe(running.url, P99Watch(limit_ms=_SLOW_MS), console.print, clock=SystemClock()):
                until_interrupted(console)
        finally:
            running.stop()


def _say_hello(url: str, status: dict[str, Any], way: Entry, profile: str) -> None:
    plan, body = status["plan"], '{"text": "play some jazz"}'
    serving = plan["releases"][plan["subject"]]
    for line in (
        f"serving release [bold]{serving}[/bold] at [bold]{url}[/bold] · profile {profile} · docs at {url}/docs",
        f"ingress: {way.in_words()}",
        f"rule in force: {status['health']['rule']}",
        f"next: curl {url}/v1/predict -H 'content-type: application/json' -d '{body}'",
        f"      failsoft status --url {url}",
        f"      failsoft degrade --for 15m --why 'looks odd' --url {url}",
    ):
        console.print(line, highlight=False, soft_wrap=True)
