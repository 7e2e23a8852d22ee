"""``failsoft release new-key`` and ``sign``: who vouches for releases. They parse, wire and print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, WhyOption, release_app, who_orders
from failsoft.cli.said import JsonOption, answer
from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side


@release_app.command("new-key")
def new_key(
    file: Annotated[Path, typer.Argument(help="Where the private half goes; a new file that only you can read.")],
    what: Annotated[str, typer.Option(help="Said behind the key where it is trusted, such as whose it is.")] = "",
    json_: JsonOption = False,
) -> None:
    """Make a key that signs releases, and print the line that trusts it.

    The file is named by FAILSOFT_SIGNING_KEY_FILE where releases are made; the line goes into the file that
    FAILSOFT_TRUSTED_KEYS names wherever releases are judged and served. Keep both out of the home folder.
    """
    from failsoft.artifacts.signing_keys import make_signing

    line = make_signing(file).line(what)
    answer(json_, {"trust": line, "private_key": file}, line)


@release_app.command()
def sign(
    why: WhyOption,
    name: Annotated[str | None, typer.Argument(help="Name of a published release.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them, as before a key is retired.")] = False,
    vouch: Annotated[
        bool, typer.Option("--vouch", help="I know where it is from: also if no accepted key signed it.")
    ] = False,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Sign published releases anew with the key that signs now. Their contents and digests stay what they are.

    To change a key: add the new one's line to the trusted keys everywhere, name its file where releases are made, run
    this with --all, then write "retired" before the old one's line.
    """
    from failsoft.artifacts.resign import sign_again

    found = Home.find(home)
    store, ledger = (
        found.releases(SystemClock()),
        Ledger(found.ledger, SystemClock(), side=Side.SERVING, subject="releases"),
    )
    if every == (name is not None) or (every and vouch):
        raise ConfigError("name one release, or give --all; vouch for one release at a time")
    done: dict[str, str] = {}
    for one in [name] if name is not None else [artifact.name for artifact in store.listing()]:
        changed = sign_again(store, one, vouch=vouch)
        if changed:
            ledger.record("release_signed", why, release=one, vouched=vouch, by=who_orders())
        done[one] = "is signed" if changed else "was signed so before"
    objections = {one: f"is not signed: {why}" for one, why in store.foreign().items()} if every else {}
    answer(json_, done | objections, *(f"{one} {said}" for one, said in (done | objections).items()))
