"""``failsoft release``: what is published, what serves, what stays. They parse, wire and print; no logic lives here."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from failsoft.artifacts.home import Home
from failsoft.cli.app import DEFAULT_URL, HomeOption, UrlOption, WhyOption, console, release_app, who_orders
from failsoft.cli.completion import complete_release
from failsoft.cli.gate import FAILED, AgainstOption, ConfigOption, Judging, ReplicaOption, TrafficOption, WaiveOption
from failsoft.cli.said import JsonOption, answer, print_json, progress
from failsoft.errors import ArtifactMissingError, DamagedArtifactError, GateError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.remote import GatewayClient

if TYPE_CHECKING:
    from failsoft.release.leftovers import Leftover
    from failsoft.release.shelf import Standing

_Name = Annotated[str, typer.Argument(help="Name of a published release.", autocompletion=complete_release)]
_KEEP = 5


class _Width(StrEnum):
    """As the models name them; written here again, since --help loads no torch. A test holds both together."""

    BF16 = "bf16"
    FP16 = "fp16"
    INT8 = "int8"


@release_app.command()
def publish(
    source: Annotated[str, typer.Argument(help="Folder of a candidate; with --width also a published release.")],
    name: Annotated[str | None, typer.Option(help="Of the release; made of date and contents without it.")] = None,
    width: Annotated[_Width | None, typer.Option(help="Publish a variant with narrow weights.")] = None,
    config: ConfigOption = None,
    waive: WaiveOption = None,
    replica: ReplicaOption = True,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Gate a candidate and publish it, whole and for good. A training run publishes by itself when it ends.

    A narrow variant is a release of its own: it is gated, promoted in stages and rolled back like any other. Exit code
    2: a gate failed.
    """
    import torch

    from failsoft.models.narrow import Width
    from train_jobs.republish import Source, republish

    torch.set_num_threads(1)  # as the gate does
    found, how = Home.find(home), Judging(config=config, waive=waive, replica=replica)
    asked = Source(
        release=source,
        name=name,
        width=None if width is None else Width(width.value),
        settings=how.settings(found),
        probe=how.probe(),
    )
    try:
        with progress.status(f"judging {source}"):
            bundle = republish(asked, home=found, clock=SystemClock())
    except GateError as error:
        typer.echo(f"failsoft: {error}", err=True)
        raise typer.Exit(code=FAILED) from error
    told, next_ = {"release": bundle.name, "digest": bundle.digest}, f"next: failsoft release promote {bundle.name}"
    answer(json_, told, f"published {bundle.name} ({bundle.digest})", next_)


@release_app.command()
def ls(json_: JsonOption = False, home: HomeOption = None) -> None:
    """List releases, and why each of them stays."""
    from failsoft.cli.release_tables import as_json, listing

    found = Home.find(home)
    standing = _standings(found, _KEEP)
    if json_:
        print_json(as_json(standing))
    else:
        console.print(listing(standing, found.releases(SystemClock()).foreign()))


@release_app.command()
def show(name: _Name, json_: JsonOption = False, home: HomeOption = None) -> None:
    """Verify a release and show what it says of itself: baseline, provenance, gates, waivers."""
    from failsoft.artifacts.bundle import Bundle, Role
    from failsoft.cli.release_tables import details, facts
    from failsoft.release.publish import stored_report
    from failsoft.release.report import print_report

    bundle = Bundle.of(Home.find(home).releases(SystemClock()).open(name))
    ungated = bundle.own_model and not bundle.has(Role.GATE_REPORT)  # published by code that asks no gates
    report = None if ungated else stored_report(bundle)
    if json_:
        gates = {"gates": json.loads(report.to_json()) if report else None}
        print_json({"release": name} | dict(facts(bundle)) | gates)
        return
    console.print(details(bundle))
    if report:
        print_report(report, console)
    else:
        console.print(f"published without gates; judge it with: failsoft gate {name}", highlight=False, markup=False)


@release_app.command()
def promote(
    name: Annotated[
        str | None,
        typer.Argument(help="Name of a release; the newest published one without it.", autocompletion=complete_release),
    ] = None,
    when_gated: Annotated[
        bool, typer.Option("--when-gated", help="Judge it again first, against what serves now; only a pass goes on.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Also one that was rejected or rolled back.")] = False,
    against: AgainstOption = None,
    config: ConfigOption = None,
    traffic: TrafficOption = None,
    waive: WaiveOption = None,
    replica: ReplicaOption = True,
    url: UrlOption = DEFAULT_URL,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Let a release begin its way: shadow, canary, ramp. The served one stands by. Exit code 2: a gate failed."""
    found = Home.find(home)
    name = name or _newest(found)
    if when_gated:
        how = Judging(against=against, config=config, traffic=traffic, waive=waive, replica=replica)
        _stop_unless_passed(how, name, found, json_=json_)
    with GatewayClient(url, token=found.operator_token()) as client:
        plan = client.propose(name, again=again)
    answer(json_, plan, f"{name}: {plan.get('stage')}, plan epoch {plan.get('epoch')}. Watch with: failsoft status")


@release_app.command()
def rollback(why: WhyOption, url: UrlOption = DEFAULT_URL, json_: JsonOption = False, home: HomeOption = None) -> None:
    """Give up whichever release is on trial or has just come into service: the one before, still warm, serves at once.

    A change of the plan: nothing is loaded, and no replica starts anew.
    """
    clock = SystemClock()
    with GatewayClient(url, token=Home.find(home).operator_token()) as client:
        plan = client.status()["plan"]
        release = str(plan["releases"][plan["subject"]])
        began_s = clock.monotonic_s()
        after = client.steer(release, "abort", why=why, by=who_orders())
        took_ms = (clock.monotonic_s() - began_s) * 1000
    words = f"rolled back from {release} in {took_ms:.0f} ms: {after.get('why')} (plan epoch {after.get('epoch')})"
    answer(json_, after | {"took_ms": round(took_ms, 1)}, words)


@release_app.command()
def pin(name: _Name, why: WhyOption, json_: JsonOption = False, home: HomeOption = None) -> None:
    """Keep a release, whatever is removed otherwise, until it is unpinned."""
    from failsoft.release.shelf import Pins

    found = Home.find(home)
    found.releases(SystemClock()).open(name)
    Pins(found).pin(name, why)
    _ledger(found).record("release_pinned", why, release=name)
    answer(json_, {"release": name, "pinned": why}, f"{name} stays until: failsoft release unpin {name}")


@release_app.command()
def unpin(name: _Name, json_: JsonOption = False, home: HomeOption = None) -> None:
    """Let a pinned release go."""
    from failsoft.release.shelf import Pins

    found = Home.find(home)
    Pins(found).unpin(name)
    _ledger(found).record("release_unpinned", "an operator's order", release=name)
    answer(json_, {"release": name, "pinned": None}, f"{name} is no longer pinned")


@release_app.command()
def gc(
    keep: Annotated[int, typer.Option(help="So many of the newest stay; at least 2.")] = _KEEP,
    keep_candidates: Annotated[int, typer.Option(help="So many of the newest that failed stay.")] = _KEEP,
    damaged_days: Annotated[float, typer.Option(help="Damaged ones, put aside, stay so long …")] = 14.0,
    damaged_gb: Annotated[float, typer.Option(help="… and the newest, up to so many GB of all.")] = 10.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Remove old releases; never the served one, what is loaded, what was served before, or what is pinned.

    Also old candidates that failed, damaged releases in quarantine, and what killed processes left half done.
    """
    found = Home.find(home)
    going = [standing for standing in _standings(found, keep) if not standing.kept_for]
    rest = [*_rest(found, keep_candidates), *_damaged(found, damaged_days, damaged_gb)]
    said, gone, words = "would remove" if dry_run else "removed", list[dict[str, object]](), list[str]()
    for standing in going:
        name = standing.artifact.name
        if not dry_run and not _removed(found, keep, name):
            words.append(f"{name} stays: it came into use or was pinned just now")
            continue
        gone.append({"name": name, "size_bytes": standing.size_bytes, "what": "release"})
        words.append(f"{said} {name} ({standing.size_bytes / 1e6:.2f} MB)")
    for leftover in rest:
        size_bytes = leftover.size_bytes  # before it is gone
        if dry_run or leftover.remove():
            gone.append({"name": leftover.folder.name, "size_bytes": size_bytes, "what": leftover.what})
            words.append(f"{said} {leftover.folder.name} ({size_bytes / 1e6:.2f} MB): {leftover.what}")
    answer(json_, {said.replace(" ", "_"): gone}, *(words if going or rest else ("nothing to remove",)))


def _rest(home: Home, keep: int) -> list[Leftover]:
    from failsoft.release.leftovers import leftovers

    found = leftovers(home, releases=home.releases(SystemClock()).root, keep_newest=keep)
    return [leftover for leftover in found if not leftover.kept]


def _damaged(home: Home, days: float, gigabytes: float) -> list[Leftover]:
    from failsoft.release.set_aside import SetAsidePolicy, set_aside
    from failsoft.release.shelf import Pins
    from train_jobs.served import roles_of

    clock, held = SystemClock(), {*roles_of(home).in_words(), *Pins(home).all()}
    policy = SetAsidePolicy(days=days, gigabytes=gigabytes)
    found = set_aside(home.releases(clock).root, policy, held=held, now_s=clock.wall_s())
    return [leftover for leftover in found if not leftover.kept]


def _removed(home: Home, keep: int, name: str) -> bool:
    """Whether it went: it is looked at again first, since removing those before it took a while."""
    from failsoft.release.shelf import Pins

    with Pins(home).held():
        if any(standing.artifact.name == name and standing.kept_for for standing in _standings(home, keep)):
            return False
        home.releases(SystemClock()).remove(name)
    _ledger(home).record("release_removed", f"older than the {keep} newest, and nothing holds it", release=name)
    return True


def _stop_unless_passed(how: Judging, release: str, home: Home, *, json_: bool) -> None:
    from failsoft.release.report import print_report

    report = how.judged(release, home, progress)
    print_report(report, progress if json_ else console)
    if not report.passed:
        told = {"promoted": False, "gates": json.loads(report.to_json())}
        answer(json_, told, f"{release} was not promoted; what serves goes on")
        raise typer.Exit(code=FAILED)


def _standings(home: Home, keep: int) -> list[Standing]:
    """Looks at the plan last: a release that came into use in between is then seen."""
    from failsoft.release.shelf import Pins, standings
    from train_jobs.served import roles_of

    releases, pins = home.releases(SystemClock()).listing(), Pins(home).all()
    return standings(releases, in_use=roles_of(home).in_words(), pins=pins, keep_newest=keep)


def _newest(home: Home) -> str:
    releases = home.releases(SystemClock())

    def damaged(name: str, why: str) -> None:
        raise DamagedArtifactError(f"the newest release {name} is damaged: {why}; name another one")

    newest = releases.newest(on_damage=damaged)
    if newest is None:
        raise ArtifactMissingError(f"no release in {releases.root}; make one with: failsoft train")
    return newest.name


def _ledger(home: Home) -> Ledger:
    return Ledger(home.ledger, SystemClock(), side=Side.SERVING, subject="releases")
