"""``failsoft fetch`` and ``failsoft release send``, as init containers and people type them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from failsoft.artifacts.home import Home
from failsoft.cli import fetch as _fetch  # noqa: F401 -- hangs its commands on the app
from failsoft.cli.app import app
from failsoft.errors import ArtifactMissingError, ConfigError
from failsoft.health.clock import ManualClock


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with one release and one checkpoint."""
    made = Home(root=tmp_path / "home")

    def write(folder: Path) -> None:
        (folder / "weights").write_bytes(b"1" * 100)

    made.releases(ManualClock()).publish("spring", write, meta={})
    made.checkpoints("first", ManualClock()).publish("p8", write, meta={"position": 8, "healthy": True})
    return made


def typed(*words: str, remote: str | None = None) -> Result:
    variables = {"COLUMNS": "200"} | ({} if remote is None else {"FAILSOFT_REMOTE": remote})
    return CliRunner().invoke(app, list(words), env=variables)


def test_a_release_that_was_sent_is_fetched_by_an_empty_machine(home: Home, tmp_path: Path) -> None:
    url, empty = f"file://{tmp_path}/there", str(tmp_path / "empty")
    sent = typed("release", "send", "spring", "--to", url, "--home", str(home.root))
    assert sent.exit_code == 0, sent.output
    fetched = typed("fetch", "--release", "newest", "--home", empty, remote=url)
    assert fetched.exit_code == 0, fetched.output
    assert f"spring is whole, fetched from {url}" in fetched.stdout
    again = typed("fetch", "--release", "spring", "--home", empty)
    assert "spring is whole, here already" in again.stdout


def test_a_run_finds_its_copies_where_training_puts_them(home: Home, tmp_path: Path) -> None:
    from failsoft.artifacts.remote_place import place_of
    from failsoft.artifacts.remote_store import RemoteStore
    from failsoft.training.checkpoints.remote_note import remote_of_run

    url = f"file://{tmp_path}/there"
    checkpoint = home.checkpoints("first", ManualClock()).open("p8")
    RemoteStore(place_of(remote_of_run(url, "first")), kind="checkpoint").put(checkpoint)
    fetched = typed("fetch", "--run", "first", "--from", url, "--home", str(tmp_path / "empty"))
    assert fetched.exit_code == 0, fetched.output
    assert "p8 is whole, fetched" in fetched.stdout


@pytest.mark.parametrize("landed", [{}, {"landing": "00112233445566aa"}], ids=["copied", "brought by its writers"])
def test_what_a_run_has_taken_back_is_not_fetched_though_its_store_was_away_since(
    home: Home, tmp_path: Path, landed: dict[str, str]
) -> None:
    """As by the init container of a pod that is started again on the same home."""
    from failsoft.artifacts.remote_place import place_of
    from failsoft.artifacts.remote_store import RemoteStore, folder_name
    from failsoft.training.checkpoints.remote_note import remote_of_run
    from failsoft.training.checkpoints.withdrawn import note_withdrawn

    url, store = f"file://{tmp_path}/there", home.checkpoints("first", ManualClock())
    meta = {"position": 16, "healthy": True} | landed
    undone = store.publish("p16", lambda folder: (folder / "weights").touch(), meta=meta)
    RemoteStore(place_of(remote_of_run(url, "first")), kind="checkpoint").put(undone)
    note_withdrawn(store.root, [] if landed else [undone], [folder_name("p16", undone.manifest)] if landed else [])
    store.remove("p16")
    fetched = typed("fetch", "--run", "first", "--from", url, "--home", str(home.root))
    assert fetched.exit_code == 0, fetched.output
    assert "p8 is whole, here already" in fetched.stdout
    assert [one.name for one in store.listing()] == ["p8"]


def test_nothing_to_fetch_is_an_error_but_on_a_first_start(tmp_path: Path) -> None:
    empty = ("--home", str(tmp_path / "empty"))
    refused = typed("fetch", "--run", "first", *empty)
    assert isinstance(refused.exception, ArtifactMissingError)
    first = typed("fetch", "--run", "first", "--first-start", *empty)
    assert first.exit_code == 0
    assert "it begins" in first.stdout


def test_fetch_wants_a_run_or_a_release_and_not_both() -> None:
    assert isinstance(typed("fetch").exception, ConfigError)
    assert isinstance(typed("fetch", "--run", "a", "--release", "b").exception, ConfigError)


def test_no_secret_of_an_address_is_shown(home: Home, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/there?token=sesame"
    sent = typed("release", "send", "spring", "--to", url, "--home", str(home.root))
    fetched = typed("fetch", "--release", "newest", "--home", str(tmp_path / "empty"), remote=url)
    missing = typed("fetch", "--run", "nobody", "--home", str(tmp_path / "empty"), remote=url)
    assert isinstance(missing.exception, ArtifactMissingError)
    assert "sesame" not in sent.output + fetched.output + str(sent.exception) + str(fetched.exception)
    assert "sesame" not in str(missing.exception)
