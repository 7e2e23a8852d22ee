"""``failsoft ckpt`` on a remote store, by its address, and what it says of a run that has one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from failsoft.artifacts.remote_place import place_of
from failsoft.artifacts.remote_store import RemoteStore
from failsoft.artifacts.store import ArtifactStore
from failsoft.cli import checkpoints as _checkpoints  # noqa: F401 -- hangs its commands on the app
from failsoft.cli.app import app
from failsoft.errors import ArtifactError, ArtifactMissingError
from failsoft.health.clock import ManualClock
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.checkpoints.remote_note import note_remote, remote_of_run
from tests.training.here_link import mirror_here
from tests.training.toys import toy_loop

NAMES = [f"position-{position:012d}" for position in (8, 16, 24)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run with copies in ``there``, of which the newest local one is gone and the oldest copy too."""
    loop = toy_loop(tmp_path / "runs" / "first")
    old, url = loop.checkpoints, remote_of_run(f"file://{tmp_path}/there", "first")
    loop.checkpoints = Checkpoints(
        store=old.store,
        identity=old.identity,
        ranks=old.ranks,
        ledger=old.ledger,
        mirror=mirror_here(old.store, place_of(url), clock=loop.desk.clock),
    )
    loop.run()
    note_remote(old.store.root, url)
    old.store.remove(NAMES[2])
    (oldest,) = (tmp_path / "there" / "first" / "checkpoints").glob(f"{NAMES[0]}.*")
    (oldest / "manifest.json").unlink()
    return tmp_path


def typed(home: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["ckpt", *words, "--home", str(home)], env={"COLUMNS": "200"})


def read(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def address(home: Path) -> str:
    return f"file://{home}/there/first"


def test_ls_says_for_each_checkpoint_where_it_is_safe(home: Path) -> None:
    rows = read(typed(home, "ls", "first", "--json"))
    assert [(row["name"], row["where"]) for row in rows] == [
        (NAMES[0], ["local"]),
        (NAMES[1], ["local", "remote"]),
        (NAMES[2], ["remote"]),
    ]
    shown = " ".join(typed(home, "ls", "first").stdout.split())
    assert "without this disk the run goes on from position 24; 1 of these would be lost; 1 unfinished there" in shown


def test_ls_of_an_address_lists_the_copies_alone(home: Path) -> None:
    rows = read(typed(home, "ls", address(home), "--json"))
    assert [(row["name"], row["where"]) for row in rows] == [(name, ["remote"]) for name in NAMES[1:]]


def test_ls_tells_the_local_ones_also_while_the_remote_store_is_away(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: RemoteStore) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(RemoteStore, "shelf", away)
    said = typed(home, "ls", "first")
    assert said.exit_code == 0
    assert "only what is here" in said.stderr
    assert NAMES[0] in said.stdout


def test_verify_reads_every_byte_of_the_copies(home: Path) -> None:
    assert [entry["damage"] for entry in read(typed(home, "verify", address(home), "--json"))] == [None, None]
    (newest,) = (home / "there" / "first" / "checkpoints").glob(f"{NAMES[2]}.*")
    content = (newest / "state.safetensors").read_bytes()
    (newest / "state.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    said = typed(home, "verify", address(home), "--json")
    assert said.exit_code == 2
    assert [bool(entry["damage"]) for entry in json.loads(said.stdout)] == [False, True]


def test_show_and_diff_fetch_what_they_look_into(home: Path) -> None:
    assert read(typed(home, "show", address(home), "16", "--json"))["meta"]["position"] == 16
    told = read(typed(home, "diff", address(home), "16", "newest", "--json"))
    assert told["scalars"]["position"] == [16, 24]


def test_fetch_brings_a_copy_into_a_run_verified(home: Path) -> None:
    assert typed(home, "fetch", address(home), "--run", "second").exit_code == 0
    store = ArtifactStore(home / "runs" / "second" / "checkpoints", ManualClock(), kind="checkpoint")
    assert store.open(NAMES[2]).manifest.meta["position"] == 24
    assert isinstance(typed(home, "fetch", address(home), "--run", "second").exception, ArtifactError)


def test_prune_names_and_removes_by_the_same_rules(home: Path) -> None:
    going = read(typed(home, "prune", address(home), "--last", "1", "--json"))
    assert ([name.partition(".")[0] for name in going["would_remove"]], going["stay"]) == ([NAMES[1]], 1)
    gone = read(typed(home, "prune", address(home), "--last", "1", "--unfinished", "--yes", "--json"))
    assert [name.partition(".")[0] for name in gone["removed"]] == [NAMES[1], NAMES[0]]
    assert [path.name.partition(".")[0] for path in (home / "there/first/checkpoints").iterdir()] == [NAMES[2]]


def test_an_address_without_checkpoints_says_how_one_ends(home: Path) -> None:
    error = typed(home, "verify", f"file://{home}/there/second").exception
    assert isinstance(error, ArtifactMissingError)
    assert "ends with the run's name" in str(error)
