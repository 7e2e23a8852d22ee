"""The commands that look at a running app and steer it. They parse, ask a gateway and print; no logic lives here."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from failsoft.artifacts.home import Home
from failsoft.cli.app import DEFAULT_URL, HomeOption, UrlOption, WhyOption, app, console, release_app, who_orders
from failsoft.cli.completion import complete_release
from failsoft.cli.said import JsonOption, answer, print_json
from failsoft.errors import ServingError
from failsoft.remote import GatewayClient

_ReleaseArgument = Annotated[
    str, typer.Argument(help="Name of the release; as failsoft status shows it.", autocompletion=complete_release)
]


@app.command()
def status(url: UrlOption = DEFAULT_URL, json_: JsonOption = False, home: HomeOption = None) -> None:
    """Say what a running app does now: stage, what it waits for, who answers, which replicas follow.

    A gateway with console_token is read with the token of the home, or of $FAILSOFT_VIEWER_TOKEN.
    """
    from failsoft.cli.rollout_words import rollout_rows
    from failsoft.demo.report import Table
    from failsoft.demo.tables import status_table, to_rich

    with GatewayClient(url, reader=Home.find(home).reader_token) as client:
        answer, rollout = client.status(), _rollout(client)
    if json_:
        print_json(answer | {"rollout": rollout})
        return
    console.print(status_table(answer))
    title = "The rollout, as the controller knows it"
    console.print(to_rich(Table(title=title, columns=("what", "now"), rows=rollout_rows(answer, rollout))))


@app.command()
def degrade(
    why: WhyOption,
    for_: Annotated[
        str | None, typer.Option("--for", help="End by itself after this time, like 90s, 15m or 2h.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Hold the model back for everyone, on every replica, until restored or the time is over.

    What stands in answers: the previous release where it is warm, else the fallback.
    """
    from failsoft.durations import parse_duration_s

    for_s = parse_duration_s(for_) if for_ else None
    with _operator(url, home) as client:
        plan = client.degrade(for_s=for_s, why=why, by=who_orders())
    answer(json_, plan, f"degraded: plan epoch {plan.get('epoch')}. Undo with: failsoft restore --why '…'")


@app.command()
def restore(why: WhyOption, url: UrlOption = DEFAULT_URL, json_: JsonOption = False, home: HomeOption = None) -> None:
    """End an operator's force; the model returns through shadow, canary and ramp."""
    with _operator(url, home) as client:
        plan = client.restore(why=why, by=who_orders())
    words = f"restored: stage {plan.get('stage')}, plan epoch {plan.get('epoch')}. Watch with: failsoft status"
    answer(json_, plan, words)


@release_app.command()
def abort(
    release: _ReleaseArgument,
    why: WhyOption,
    url: UrlOption = DEFAULT_URL,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Give a release up, on trial or in service: the older one, still warm, serves at once."""
    with _operator(url, home) as client:
        _say(client.steer(release, "abort", why=why, by=who_orders()), json_=json_)


@release_app.command()
def hold(
    release: _ReleaseArgument,
    why: WhyOption,
    url: UrlOption = DEFAULT_URL,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Keep a release in the stage where it is; it still falls when it is ill."""
    with _operator(url, home) as client:
        _say(client.steer(release, "hold", why=why, by=who_orders()), json_=json_)


@release_app.command()
def resume(
    release: _ReleaseArgument,
    why: WhyOption,
    url: UrlOption = DEFAULT_URL,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Let a release that is held go on by itself."""
    with _operator(url, home) as client:
        _say(client.steer(release, "resume", why=why, by=who_orders()), json_=json_)


@release_app.command()
def advance(
    release: _ReleaseArgument,
    why: WhyOption,
    from_: Annotated[
        str | None, typer.Option("--from", help="The stage that it has passed; the one it is in now without it.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Let a release that has passed its stage into the next one: where it is held, or goes by hand. Skips nothing."""
    with _operator(url, home) as client:
        from_stage = from_ or str(client.rollout()["plan"]["stage"])
        _say(client.steer(release, "advance", why=why, by=who_orders(), from_stage=from_stage), json_=json_)


def _operator(url: str, home: Any) -> GatewayClient:
    return GatewayClient(url, token=Home.find(home).operator_token())


def _rollout(client: GatewayClient) -> dict[str, Any]:
    """A status is wanted most when something is away: then it says so, and shows the rest."""
    try:
        return client.rollout()
    except ServingError as error:
        return {"error": str(error)}


def _say(plan: dict[str, Any], *, json_: bool) -> None:
    answer(json_, plan, f"{plan.get('why')} (plan epoch {plan.get('epoch')}). Watch with: failsoft status")
