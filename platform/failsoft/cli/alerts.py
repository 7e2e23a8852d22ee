"""``failsoft alerts``: events that leave the house, and alerts that come in. It parses, wires and prints."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from failsoft.artifacts.home import Home
from failsoft.cli.app import DEFAULT_URL, HomeOption, UrlOption, app, console
from failsoft.cli.said import JsonOption, answer, print_json
from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock
from failsoft.ingress import LOOPBACK

if TYPE_CHECKING:
    from fastapi import FastAPI

    from failsoft.alerts.courier import Courier
    from failsoft.alerts.settings import AlertSettings

alerts_app = typer.Typer(help="Tell people of events, and let alerts act, as alerts.toml says.", no_args_is_help=True)
app.add_typer(alerts_app, name="alerts")


@alerts_app.command()
def check(json_: JsonOption = False, home: HomeOption = None) -> None:
    """Read alerts.toml and say who would be told of what, and which alert may do what."""
    from failsoft.alerts.settings import FILE_NAME, read_settings

    place = Home.find(home)
    settings = read_settings(place.root)
    for target in settings.send:
        target.address()  # says what is wrong with it
    if json_:
        print_json(_as_json(settings))
        return
    table = Table("who or which", "what", "how", title=escape(str(place.root / FILE_NAME)))
    for target in settings.send:
        where = escape(target.to) if target.to.startswith("env:") else "an address in the file"
        table.add_row(f"→ {target.name}", ", ".join(target.kinds), f"{target.form} to {where}, {target.again_after}")
    for rule in settings.receive:
        how = f"for {rule.for_}" if rule.action == "degrade" else rule.run or "the alert's label 'run'"
        table.add_row(f"← {escape(rule.alert)}", rule.action, escape(how))
    console.print(table if table.row_count else f"nobody is told of anything: there is no {place.root / FILE_NAME}")


@alerts_app.command("test")
def try_target(
    target: Annotated[str, typer.Argument(help="Its name in alerts.toml.")],
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Send one message to a target now, and say what it answered."""
    from failsoft.alerts.message import Message
    from failsoft.alerts.settings import read_settings
    from failsoft.health.ledger import Event, Side

    found = {one.name: one for one in read_settings(Home.find(home).root).send}
    if target not in found:
        raise ConfigError(f"no target is called {target!r}; there: {', '.join(found) or 'none'}")
    words = "a test by failsoft alerts test; nothing is wrong"
    event = Event(at_s=SystemClock().wall_s(), side=Side.SERVING, kind="test", subject="failsoft", why=words)
    body = Message(event=event, id="test").body(found[target].form)
    status = _posted(found[target].address(), body)
    answer(json_, {"target": target, "status": status}, f"{target} answered {status}")
    raise typer.Exit(0 if 200 <= status < 300 else 1)


@alerts_app.command()
def run(
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="For Alertmanager's webhook.")] = 9095,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = LOOPBACK,
    url: UrlOption = DEFAULT_URL,
    home: HomeOption = None,
) -> None:
    """Follow the ledger and tell the targets; take Alertmanager's notices. Until Ctrl-C."""
    from failsoft.alerts.office import FOLDER, at_work, only_one
    from failsoft.alerts.settings import read_settings
    from failsoft.demo.waiting import until_interrupted

    place = Home.find(home)
    settings = read_settings(place.root)
    folder = place.root / FOLDER
    with only_one(folder), at_work(_couriers(place), _say_failed):
        names = ", ".join(target.name for target in settings.send) or "nobody"
        console.print(f"telling {names} of what happens in {place.root}")
        if not settings.receive:
            console.print("no alert may do anything: alerts.toml has no \\[\\[receive]]")
            until_interrupted(console)
            return
        with _listening(_receiver(place, url), host, port):
            console.print(
                f"taking alerts at http://{host}:{port}/v1/alerts, with the token of {place.root}/alert-token"
            )
            until_interrupted(console)


def _as_json(settings: AlertSettings) -> dict[str, object]:
    """Without the addresses, which may hold secrets."""
    send = [
        {"name": one.name, "kinds": one.kinds, "form": one.form, "again_after": one.again_after}
        for one in settings.send
    ]
    receive = [{"alert": one.alert, "action": one.action, "for": one.for_, "run": one.run} for one in settings.receive]
    return {"send": send, "receive": receive}


def _posted(address: str, body: dict[str, object]) -> int:
    import httpx

    from failsoft.alerts.courier import DeliveryPolicy, post_json

    try:
        return post_json(address, body, DeliveryPolicy().timeout_s)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(f"it can't be reached ({type(error).__name__}); look at its address") from None


def _couriers(place: Home) -> list[Courier]:
    from failsoft.alerts.courier import Courier, post_json
    from failsoft.alerts.office import FOLDER
    from failsoft.alerts.settings import read_settings

    targets = read_settings(place.root).send
    for target in targets:
        target.address()
    folder, clock = place.root / FOLDER, SystemClock()
    return [Courier(target, place.ledger, folder, clock=clock, post=post_json) for target in targets]


def _receiver(place: Home, url: str) -> FastAPI:
    from failsoft.alerts.receiver import build_receiver
    from failsoft.alerts.remedies import Remedies
    from failsoft.alerts.settings import read_settings
    from failsoft.remote import GatewayClient

    remedies = Remedies(place, lambda: GatewayClient(url, token=place.operator_token()), SystemClock())
    rules = lambda: read_settings(place.root).receive  # noqa: E731 -- asked for each notice
    return build_receiver(rules=rules, acts=remedies, token=place.alert_tokens().digests)


@contextmanager
def _listening(receiver: FastAPI, host: str, port: int) -> Iterator[None]:
    import uvicorn

    from failsoft.serving.start_up import check_port

    check_port(host, port)
    server = uvicorn.Server(uvicorn.Config(receiver, host=host, port=port, log_level="warning", access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)  # off the main thread it leaves signals alone
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(5.0)


def _say_failed(courier: object, error: Exception) -> None:
    console.print(f"[red]a courier stumbled and goes on:[/red] {escape(str(error))}", highlight=False)
