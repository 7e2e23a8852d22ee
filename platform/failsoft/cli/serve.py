"""``failsoft serve``: a release behind the three nets on this machine. It parses, wires and prints."""

from __future__ import annotations

import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, app, console
from failsoft.cli.completion import complete_release
from failsoft.cli.said import progress
from failsoft.ingress import LOOPBACK, Entry, Ingress, entry
from failsoft.local_ray import local_ray

if TYPE_CHECKING:
    from failsoft.serving.task import AppSpec

_SLOW_MS = 25.0
"""A tenth of the deadline of a whole answer."""

_ReleaseOption = Annotated[
    str | None, typer.Option(help="Release to serve first; else the newest one.", autocompletion=complete_release)
]
_IngressOption = Annotated[
    Ingress | None, typer.Option(help="Serve's own proxy, or HAProxy; the fast one where it can be had.")
]
_GrpcOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=65_535,
        help="Also speak the Open Inference Protocol over gRPC here; Serve opens this port on all interfaces.",
    ),
]
_TracesOption = Annotated[
    str | None, typer.Option(help="Send traces of requests to this OTLP collector: http://127.0.0.1:4318/v1/traces.")
]
_KeepOption = Annotated[
    bool, typer.Option("--keep-texts", help="Keep texts of a few requests that go wrong, for replay; for 30 days.")
]
_AppOption = Annotated[
    str | None, typer.Option("--app", help="Own app, as package.module:config; the example without it.")
]


@app.command()
def serve(
    release: _ReleaseOption = None,
    profile: Annotated[str, typer.Option(help="production (minutes) or drill (seconds).")] = "production",
    gateways: Annotated[int, typer.Option(min=1, help="Gateway replicas.")] = 2,
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = LOOPBACK,
    ingress: _IngressOption = None,
    grpc_port: _GrpcOption = None,
    traces: _TracesOption = None,
    own: _AppOption = None,
    keep_texts: _KeepOption = False,
    home: HomeOption = None,
) -> None:
    """Serve a release behind the three nets, on a private Ray on this machine, until Ctrl-C."""
    from failsoft.serving.start_up import check_start

    sys.path.insert(0, str(Path.cwd()))  # where an own app lies, as for ``serve run``; Ray's workers look there, too
    root = Home.find(home)
    for remark in check_start(root, host=host, port=port):
        console.print(f"[yellow]mind:[/yellow] {escape(remark)}", highlight=False)
    with entry(ingress, host=host) as way, way.in_force(), local_ray(num_cpus=4):
        from failsoft.serving.app import build_app
        from failsoft.serving.task import app_named
        from serve_apps.intent_ner import SPEC, settings_of
        from serve_apps.runtime import start

        spec = SPEC if own is None else app_named(own)
        asked = {"home": root.root, "release": release, "profile": profile, "gateways": gateways, "traces": traces}
        asked |= {"keep_texts": keep_texts}
        settings = settings_of(asked | {"grpc_from": "loopback" if host == LOOPBACK else "anywhere"})
        with progress.status("starting gateways, models, fallback and controller"):
            running = start(settings, port=port, host=host, make=partial(build_app, spec), grpc_port=grpc_port)
        try:
            _say_hello(running.url, running.first_status, way, profile, body=_body_for(spec))
            _say_grpc(grpc_port, way)
            _watch(running.url)
        finally:
            running.stop()


def _watch(url: str) -> None:
    """Until Ctrl-C; a slow way in is said."""
    from failsoft.demo.waiting import until_interrupted
    from failsoft.health.clock import SystemClock
    from failsoft.serving.web.ingress_watch import IngressProbe, P99Watch

    with IngressProbe(url, P99Watch(limit_ms=_SLOW_MS), console.print, clock=SystemClock()):
        until_interrupted(console)


def _say_grpc(port: int | None, way: Entry) -> None:
    """Where it listens is not ours to choose, and is said."""
    if port is None:
        return
    open_port = f"port {port}" if way.ingress is Ingress.SAFE else "each gateway's own port for it (40000-41000)"
    who = "calls from elsewhere are refused" if way.host == LOOPBACK else "whoever reaches it is answered"
    console.print(
        f"[yellow]mind:[/yellow] gRPC at {way.host}:{port}; {open_port} listens on all interfaces, as Ray Serve opens "
        f"it; {who}",
        highlight=False,
        soft_wrap=True,
    )


def _body_for(spec: AppSpec) -> str:
    """What to send first."""
    from failsoft.serving.web.wire import wire_of

    return json.dumps(wire_of(spec).request_examples["one"]["value"])


def _say_hello(url: str, status: dict[str, Any], way: Entry, profile: str, *, body: str) -> None:
    plan = status["plan"]
    serving = escape(plan["releases"][plan["subject"]])
    for line in (
        f"serving release [bold]{serving}[/bold] at [bold]{url}[/bold] · profile {profile}",
        f"console at [bold]{url}/console[/bold] · docs at {url}/docs",
        f"ingress: {escape(way.in_words())}",
        f"rule in force: {escape(status['health']['rule'])}",
        f"next: curl {url}/v1/predict -H 'content-type: application/json' -d {escape(shlex.quote(body))}",
        f"      failsoft status --url {url}",
        f"      failsoft degrade --for 15m --why 'looks odd' --url {url}",
    ):
        console.print(line, highlight=False, soft_wrap=True)
