"""``failsoft gate`` and ``failsoft release`` as one types them: exit codes, files for CI, and what is never removed."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from typer.testing import CliRunner, Result

from failsoft.artifacts.home import Home
from failsoft.artifacts.store import ArtifactStore
from failsoft.cli import gate as _gate  # noqa: F401 -- hangs its commands on the app
from failsoft.cli import releases
from failsoft.cli.app import app
from failsoft.errors import ArtifactMissingError, ConfigError, DamagedArtifactError, PlanStoreError
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.ledger import read_ledger
from failsoft.models.narrow import Width
from failsoft.release.leftovers import PROVENANCE
from failsoft.remote import GatewayClient
from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage
from failsoft.serving.plan.planstore import PlanStore, RolloutState
from tests.release.conftest import Trained, trained  # noqa: F401 -- a fixture
from tests.release.test_publish_run import finished
from train_jobs.publish import publish_run

PLAN = RoutingPlan(
    epoch=3,
    stage=Stage.SERVING,
    subject=Colour.GREEN,
    stand_in=Colour.BLUE,
    releases={Colour.BLUE: "r-1", Colour.GREEN: "r-2"},
    load_generation={},
    share=1.0,
    mirror_share=0.0,
    why="r-2 passed",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, trained: Trained) -> Path:  # noqa: F811
    """A home with one gated release."""
    root = tmp_path_factory.mktemp("home")
    publish_run(finished(trained), home=Home.find(root), clock=SystemClock(), name="toy", probe=None)
    return root


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """Eight releases that nobody looks into; r-2 serves, r-1 stands by."""

    def fill(folder: Path) -> None:
        (folder / "x").write_text("y")

    clock = ManualClock()
    store = ArtifactStore(tmp_path / "releases", clock, kind="release")
    for number in range(8):
        clock.advance(60.0)
        meta = {"previous": f"r-{number - 1}" if number else None}
        store.publish(f"r-{number}", fill, meta=meta)
    PlanStore(tmp_path / "serving").save(RolloutState(plan=PLAN, since_epoch=3))
    return tmp_path


def typed(home: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--home", str(home)])


def names(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "releases").iterdir())


def test_a_release_that_passes_ends_with_0_and_writes_what_ci_reads(home: Path, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "junit", "html")}
    options = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    done = typed(home, "gate", "toy", "--no-replica", *options)
    assert done.exit_code == 0, done.output
    assert json.loads(files["json"].read_text())["passed"] is True
    assert ElementTree.fromstring(files["junit"].read_text()).get("failures") == "0"  # noqa: S314 -- our own
    assert "It may be served." in files["html"].read_text()


def test_json_on_the_terminal_is_nothing_but_json(home: Path) -> None:
    done = typed(home, "gate", "toy", "--no-replica", "--json", "-")
    assert json.loads(done.stdout)["release"] == "toy"


def test_a_release_that_fails_ends_with_2_and_its_files_are_written_all_the_same(home: Path, tmp_path: Path) -> None:
    config, junit = tmp_path / "gates.toml", tmp_path / "out.xml"
    config.write_text("max_size_mb = 0.01\n")
    done = typed(home, "gate", "toy", "--no-replica", "--config", str(config), "--junit", str(junit))
    assert done.exit_code == 2
    assert ElementTree.fromstring(junit.read_text()).get("failures") == "1"  # noqa: S314 -- our own
    waived = ("--waive", "size=this machine has large disks")
    assert typed(home, "gate", "toy", "--no-replica", "--config", str(config), *waived).exit_code == 0


def test_emoji_traffic_fails_the_gate(home: Path, tmp_path: Path, trained: Trained) -> None:  # noqa: F811
    traffic = tmp_path / "traffic.txt"
    traffic.write_text("\n".join(f"{u.text} 🔥" for u in trained.corpus.validation), "utf-8")
    done = typed(home, "gate", "toy", "--no-replica", "--traffic", str(traffic), "--json", "-")
    assert done.exit_code == 2
    failed = [entry["name"] for entry in json.loads(done.stdout)["results"] if not entry["passed"]]
    assert "coverage: readable traffic words" in failed


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (("--against", "served"), ConfigError, "nothing serves"),
        (("--against", "nobody"), ArtifactMissingError, "nobody"),
        (("--traffic", "nowhere.txt"), ConfigError, "nowhere"),
        (("--config", "nowhere.toml"), ConfigError, "nowhere"),
        (("--waive", "size"), ConfigError, "reason in a sentence"),
    ],
)
def test_a_question_that_can_t_be_answered_is_an_error_in_words_and_no_pass(
    home: Path, words: tuple[str, ...], error: type[Exception], said: str
) -> None:
    done = typed(home, "gate", "toy", "--no-replica", *words)
    assert isinstance(done.exception, error)
    assert said in str(done.exception)


def test_the_narrow_widths_of_the_command_are_those_of_the_models() -> None:
    assert [width.value for width in releases._Width] == list(Width)


def test_a_variant_is_published_and_shown(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    done = typed(tmp_path, "release", "publish", "toy", "--width", "int8", "--no-replica")
    assert done.exit_code == 0, done.output
    shown = json.loads(typed(tmp_path, "release", "show", "toy-int8", "--json").stdout)
    assert (shown["weights"], shown["before it"]) == ("int8, of toy", "toy")
    assert shown["gates"]["passed"] is True
    assert float(shown["healthy accuracy"]) > 0.9


def test_the_list_says_why_each_release_stays(shelf: Path) -> None:
    typed(shelf, "release", "pin", "r-0", "--why", "audit")
    listed = {
        entry["release"]: entry["kept_for"] for entry in json.loads(typed(shelf, "release", "ls", "--json").stdout)
    }
    assert listed["r-2"] == ["served"]
    assert listed["r-1"] == ["loaded, ready to go back to", "before r-2"]
    assert listed["r-0"] == ["pinned: audit", "before r-1"]
    assert listed["r-7"] == ["newest"]


def test_gc_keeps_what_serves_what_is_before_it_what_is_pinned_and_the_newest(shelf: Path) -> None:
    typed(shelf, "release", "pin", "r-4", "--why", "audit")
    assert "would remove r-3" in typed(shelf, "release", "gc", "--keep", "2", "--dry-run").output
    assert len(names(shelf)) == 8
    assert typed(shelf, "release", "gc", "--keep", "2").exit_code == 0
    assert names(shelf) == ["r-0", "r-1", "r-2", "r-4", "r-6", "r-7"]
    removed = [event for event in read_ledger(shelf / "ledger.jsonl").events if event.kind == "release_removed"]
    assert [event.data["release"] for event in removed] == ["r-3", "r-5"]
    typed(shelf, "release", "unpin", "r-4")
    typed(shelf, "release", "gc", "--keep", "2")
    assert "r-4" not in names(shelf)


def test_gc_also_removes_what_killed_processes_left_and_old_candidates_that_failed(shelf: Path) -> None:
    for number in range(3):
        folder = shelf / "candidates" / f"c-{number}"
        folder.mkdir(parents=True)
        (folder / PROVENANCE).write_text("{}")
        os.utime(folder / PROVENANCE, (number, number))
    (shelf / "releases" / ".aside-r-9-0123").mkdir()
    said = typed(shelf, "release", "gc", "--keep", "8", "--keep-candidates", "2", "--dry-run").output
    assert "would remove c-0" in said
    assert (shelf / "candidates" / "c-0").exists()
    said = typed(shelf, "release", "gc", "--keep", "8", "--keep-candidates", "2").output
    assert "half a publication or removal: its process is gone" in said
    assert sorted(path.name for path in (shelf / "candidates").iterdir()) == ["c-1", "c-2"]
    assert names(shelf) == [f"r-{number}" for number in range(8)]


def test_gc_frees_damaged_releases_by_age_and_size_and_says_so_first(shelf: Path) -> None:
    damaged = shelf / "releases" / "quarantine" / "r-9-01234567"
    damaged.mkdir(parents=True)
    (damaged / "weights").write_bytes(b"x" * 2_000_000)
    assert "r-9" not in typed(shelf, "release", "gc", "--keep", "8", "--dry-run").output
    order = ("release", "gc", "--keep", "8", "--damaged-gb", "0.001")
    assert "would remove r-9-01234567 (2.00 MB): a damaged release" in typed(shelf, *order, "--dry-run").output
    assert damaged.is_dir()
    assert "removed r-9-01234567 (2.00 MB)" in typed(shelf, *order).output
    assert not damaged.exists()
    assert "nothing to remove" in typed(shelf, *order).output


def test_gc_leaves_what_comes_into_use_while_it_removes_others(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove, plans = ArtifactStore.remove, PlanStore(shelf / "serving")
    plans.load()

    def remove_while_another_is_proposed(store: ArtifactStore, name: str) -> None:
        remove(store, name)
        plan = replace(PLAN, epoch=4, releases={Colour.BLUE: "r-4", Colour.GREEN: "r-2"})
        plans.save(RolloutState(plan=plan, since_epoch=4))

    monkeypatch.setattr(ArtifactStore, "remove", remove_while_another_is_proposed)
    said = typed(shelf, "release", "gc", "--keep", "2").output
    assert "removed r-3" in said
    assert "r-4 stays" in said
    assert "r-4" in names(shelf)


def test_gc_removes_nothing_when_it_can_t_be_known_what_serves_or_is_pinned(shelf: Path) -> None:
    (shelf / "pins.json").write_text("{")
    assert isinstance(typed(shelf, "release", "gc", "--keep", "2").exception, DamagedArtifactError)
    (shelf / "pins.json").unlink()
    for plan in (shelf / "serving").iterdir():
        plan.write_text("{")
    assert isinstance(typed(shelf, "release", "gc", "--keep", "2").exception, PlanStoreError)
    assert len(names(shelf)) == 8


def test_a_release_that_is_not_there_can_t_be_pinned(shelf: Path) -> None:
    assert isinstance(typed(shelf, "release", "pin", "r-9", "--why", "x").exception, ArtifactMissingError)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """What a gateway was asked, which says that all is well."""
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        plan: dict[str, Any] = PLAN.as_json()
        if request.url.path == "/v1/status":
            return httpx.Response(
                200, json={"gateway": "g", "stage": "serving", "plan": plan, "health": {}, "counts": {}}
            )
        return httpx.Response(200, json=replace(PLAN, epoch=4).as_json())

    def client(url: str, *, token: str | None = None) -> GatewayClient:
        return GatewayClient(url, token=token, transport=httpx.MockTransport(answer))

    monkeypatch.setattr(releases, "GatewayClient", client)
    monkeypatch.setenv("FAILSOFT_TOKEN", "t" * 20)
    return requests


def test_a_rollback_gives_up_whatever_is_the_subject_now(shelf: Path, asked: list[httpx.Request]) -> None:
    done = typed(shelf, "release", "rollback", "--why", "it is worse")
    assert done.exit_code == 0, done.output
    assert asked[-1].url.path == "/v1/releases/r-2/abort"
    assert json.loads(asked[-1].content)["why"] == "it is worse"


def test_the_newest_release_is_promoted_when_none_is_named(shelf: Path, asked: list[httpx.Request]) -> None:
    assert typed(shelf, "release", "promote").exit_code == 0
    assert asked[-1].url.path == "/v1/releases/r-7/propose"
    assert asked[-1].url.query == b""


def test_one_that_was_given_up_is_promoted_where_that_is_said(shelf: Path, asked: list[httpx.Request]) -> None:
    assert typed(shelf, "release", "promote", "r-7", "--again").exit_code == 0
    assert asked[-1].url.path == "/v1/releases/r-7/propose"
    assert asked[-1].url.query == b"again=true"


def test_when_gated_proposes_only_what_passes(home: Path, tmp_path: Path, asked: list[httpx.Request]) -> None:
    config = tmp_path / "gates.toml"
    config.write_text("max_size_mb = 0.01\n")
    gated = ("release", "promote", "toy", "--when-gated", "--no-replica")
    assert typed(home, *gated, "--config", str(config)).exit_code == 2
    assert asked == []
    assert typed(home, *gated).exit_code == 0
    assert [request.url.path for request in asked] == ["/v1/releases/toy/propose"]


def test_a_newest_release_that_is_damaged_is_not_passed_over_for_an_older_one(
    shelf: Path, asked: list[httpx.Request]
) -> None:
    (shelf / "releases" / "r-7" / "x").write_text("z")
    assert isinstance(typed(shelf, "release", "promote").exception, DamagedArtifactError)
    assert asked == []
