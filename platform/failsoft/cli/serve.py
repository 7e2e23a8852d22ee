"""``failsoft serve``: a release behind the three nets on this machine. It parses, wires and prints."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, app, console
from failsoft.cli.completion import complete_release
from failsoft.cli.said import progress
from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock
from failsoft.ingress import LOOPBACK, Entry, Ingress, entry
from failsoft.local_ray import local_ray

if TYPE_CHECKING:
    from failsoft.serving.settings import ServeSettings
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
_AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Deploy on the Ray cluster whose dashboard is there, as in http://127.0.0.1:8265, and leave it running.",
    ),
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
    address: _AddressOption = None,
    home: HomeOption = None,
) -> None:
    """Serve a release behind the three nets, on a private Ray on this machine, until Ctrl-C.

    With --address on a cluster that has failsoft on every node, where it stays; the same command again with another
    value changes it in place. Paths, ports and $FAILSOFT_HOME are then the cluster's.
    """
    given = Namespace(**locals())
    if address is None:
        _serve_here(given)
    else:
        _deploy(given)


def _serve_here(given: Namespace) -> None:
    """On a Ray of its own, until Ctrl-C."""
    from failsoft.serving.start_up import check_start

    sys.path.insert(0, str(Path.cwd()))  # where an own app lies, as for ``serve run``; Ray's workers look there, too
    root = Home.find(given.home)
    for remark in check_start(root, host=given.host, port=given.port):
        console.print(f"[yellow]mind:[/yellow] {escape(remark)}", highlight=False)
    with entry(given.ingress, host=given.host) as way, way.in_force(), local_ray(num_cpus=4):
        from failsoft.serving.app import build_app
        from failsoft.serving.task import app_named
        from serve_apps.intent_ner import SPEC
        from serve_apps.runtime import start

        spec = SPEC if given.own is None else app_named(given.own)
        with progress.status("starting gateways, models, fallback and controller"):
            running = start(
                _settings(given, root),
                port=given.port,
                host=given.host,
                make=partial(build_app, spec),
                grpc_port=given.grpc_port,
            )
        try:
            _say_hello(running.url, running.first_status, way, given.profile, body=_body_for(spec))
            _say_grpc(given.grpc_port, way)
            _watch(running.url)
        finally:
            running.stop()


def _settings(given: Namespace, root: Home) -> ServeSettings:
    from failsoft.serving.settings import settings_of

    asked = {name: getattr(given, name) for name in ("release", "profile", "gateways", "traces", "keep_texts")}
    return settings_of(asked | {"home": root.root, "grpc_from": "loopback" if given.host == LOOPBACK else "anywhere"})


def _deploy(given: Namespace) -> None:
    """On the cluster at ``--address``."""
    from failsoft.cli.clusters import cluster_at
    from failsoft.cli.serve_cluster import deployed, wanted_of

    if given.ingress is not None:
        raise ConfigError(
            "--ingress is for this machine's own Ray: on a cluster RAY_SERVE_ENABLE_HA_PROXY=1 of ray start chooses it"
        )
    wanted = wanted_of(given)
    cluster = cluster_at(given.address)
    for remark in cluster.remarks:
        console.print(f"[yellow]mind:[/yellow] {escape(remark)}", highlight=False)
    from ray.dashboard.modules.serve.sdk import ServeSubmissionClient

    try:
        url = deployed(ServeSubmissionClient(cluster.url), wanted, say=progress.print, clock=SystemClock())
    except KeyboardInterrupt:
        progress.print(f"Ctrl-C: the cluster goes on with it; see: serve status --address {cluster.url}")
        raise typer.Exit(130) from None
    for line in (
        f"the app runs on Ray {cluster.ray}; each node with a gateway listens at [bold]{escape(url)}[/bold]",
        f"next: failsoft status --url {escape(url)}    # from a node; also: serve status --address {cluster.url}",
        f"      serve shutdown --address {cluster.url}    # ends Serve there, with all its apps",
    ):
        console.print(line, highlight=False, soft_wrap=True)


def _watch(url: str) -> None:
    """Until Ctrl-C; a slow way in is said."""
    from failsoft.demo.waiting import until_interrupted
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
