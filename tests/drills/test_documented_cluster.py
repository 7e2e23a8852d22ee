"""What the documents tell a reader to type on a Ray cluster, from a checkout and a wheel, with a token and without."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.drills.cluster import BIN, wait_until
from tests.drills.fresh_checkout import WHY_NOT, Shell, fresh_checkout

pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or ""),
]
DASHBOARD = "http://127.0.0.1:8265"
ASK = """curl -s http://127.0.0.1:8000/v1/predict -H 'content-type: application/json' -d '{"text": "play some jazz"}'"""
SHORT = "--preset demo --max-batches 4 --no-publish --no-preflight"


@pytest.fixture
def top() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fsd-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def checkout(top: Path) -> Iterator[Shell]:
    with fresh_checkout(top) as shell:
        shell.type("README.md", "source .venv/bin/activate")
        yield shell


@pytest.fixture
def wheel(top: Path, tmp_path: Path) -> Iterator[Shell]:
    """A machine where failsoft came as a wheel; the reader stands in an empty folder."""
    subprocess.run([str(ROOT / ".ci" / "build"), str(BIN.parent), str(tmp_path)], check=True, timeout=300)
    (archive,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(top / "site")
    with fresh_checkout(top, code=top / "site") as shell:
        shell.say("source .venv/bin/activate && mkdir ~/elsewhere && cd ~/elsewhere")
        yield shell


def answer(shell: Shell) -> dict[str, Any]:
    """Of the app, once it gives one; a gateway that starts says 503."""
    said: list[str] = []

    def answered() -> bool:
        said.append(shell.say(f"{ASK} || true"))
        return '"source"' in said[-1]

    wait_until(answered, what="an answer of the app", timeout_s=120)
    return dict(json.loads(said[-1]))


def gateways(shell: Shell) -> int:
    config = yaml.safe_load(shell.say(f"serve config --address {DASHBOARD}"))
    return int(config["args"]["gateways"])


def test_from_a_checkout_with_a_token_a_run_is_submitted_and_its_release_served(checkout: Shell) -> None:
    shell = checkout
    shell.type("README.md", "export FAILSOFT_HOME")
    shell.type("README.md", "ray start --head")
    shell.type("README.md", "ray job submit", within_s=500.0)
    with shell.hold("README.md", "serve run", until="is ready", ends=(0, -2, 130)):
        assert answer(shell)["release"] or answer(shell)["source"] in {"gbdt", "rules"}


def test_from_a_checkout_failsofts_own_commands_hand_work_to_a_cluster_that_asks_for_a_token(
    checkout: Shell, tiny_releases: Path
) -> None:
    shell = checkout
    shutil.copytree(tiny_releases, shell.checkout / "work" / "releases")
    shell.type("docs/deploy.md", "ray get-auth-token")
    shell.say("export FAILSOFT_HOME=$PWD/work")
    shell.say("RAY_AUTH_MODE=token ray start --head")

    submit = f"failsoft train --submit {DASHBOARD} --run nightly {SHORT}"
    told = shell.type("docs/deploy.md", "failsoft train --submit", plus=SHORT)
    assert "updates of 4 batches" in told, "the token of ~/.ray is sent, though no RAY_AUTH_MODE is set"
    told = shell.say(f"{submit} --data /absent; echo it ended with $?")
    assert "it ended with 1" in told, told
    assert "data is /absent, which is no folder" in told, "the job's own words come with its exit status"
    assert "failed with exit status 1: Job entrypoint command failed with exit code 1" in " ".join(told.split())
    assert "asks for a token" in shell.say(f"! RAY_AUTH_MODE=disabled {submit}")
    assert "does not accept the token" in shell.say(f"! RAY_AUTH_TOKEN=wrong {submit}")
    assert "6379 is Ray's own port" in shell.say("! failsoft train --submit 127.0.0.1:6379")

    shell.type("docs/deploy.md", "export RAY_AUTH_MODE")
    shell.type("docs/deploy.md", "serve build")
    shell.type("docs/deploy.md", "serve deploy")
    assert answer(shell)["source"]
    deployed = shell.type("docs/deploy.md", "failsoft serve --address", plus="--gateways 1 --profile drill")
    assert "the app runs on Ray" in deployed
    assert gateways(shell) == 1
    assert answer(shell)["source"]


def test_from_a_wheel_without_a_token_an_app_is_built_deployed_and_changed(wheel: Shell, tiny_releases: Path) -> None:
    shell = wheel
    shutil.copytree(tiny_releases, shell.top / "home" / "work" / "releases")
    shell.say("export FAILSOFT_HOME=$HOME/work RAY_AUTH_MODE=disabled")
    assert str(shell.top / "site") in shell.say("python -c 'import failsoft; print(failsoft.__file__)'")
    shell.say("ray start --head --dashboard-host 127.0.0.1")
    shell.say(f"failsoft train --submit {DASHBOARD} --run sent {SHORT}")
    assert "4 batches" in shell.say("failsoft runs sent")
    shell.say("serve build serve_apps.built:app -o serve.yaml && sed -i 's/0.0.0.0/127.0.0.1/' serve.yaml")
    shell.say(f"serve deploy --address {DASHBOARD} serve.yaml")
    assert answer(shell)["source"]
