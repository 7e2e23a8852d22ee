"""What the documents tell a reader to type on one machine, typed as it stands, in a fresh checkout."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.documented import FENCE
from tests.drills.fresh_checkout import WHY_NOT, Shell, fresh_checkout

pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or ""),
]
RELEASE = {"RELEASE": "tiny"}
LOOP = "docs/guard_your_loop.md"
OWN = "docs/serve_your_model.md"
ASK = """curl -s http://127.0.0.1:8000/v1/predict -H 'content-type: application/json' -H 'x-caller-id: KEY' \\
    -d '{"text": "play some jazz"}'"""
S3 = "http://127.0.0.1:5555"


@pytest.fixture
def shell() -> Iterator[Shell]:
    top = Path(tempfile.mkdtemp(prefix="fsd-", dir="/tmp"))
    try:
        with fresh_checkout(top) as made:
            made.type("README.md", "source .venv/bin/activate")
            yield made
    finally:
        shutil.rmtree(top, ignore_errors=True)


@pytest.fixture
def with_release(shell: Shell, tiny_releases: Path) -> Shell:
    """Its home has a release already: trained once for all drills."""
    shutil.copytree(tiny_releases, shell.checkout / "work" / "releases")
    return shell


def python_of(document: str) -> list[str]:
    return [code for language, code in FENCE.findall((ROOT / document).read_text("utf-8")) if language == "python"]


def test_the_checkout_that_is_typed_in_is_the_one_whose_code_runs(shell: Shell) -> None:
    where = shell.say(
        "python -c 'import failsoft, serve_apps, train_jobs; print(failsoft.__file__)'; which failsoft ray"
    )
    assert where.count(str(shell.checkout)) == 3, where


def test_what_needs_nothing_that_runs(with_release: Shell) -> None:
    shell = with_release
    shell.type("README.md", "failsoft doctor", ends=(0, 1))
    assert "noticed" in shell.type("README.md", "failsoft simulate")
    assert "of the time is useful" in shell.type("README.md", "failsoft plan")
    assert "what buys most" in shell.type("README.md", "failsoft fleet", within_s=300.0)
    shell.type("README.md", "failsoft gate", RELEASE, ends=(0, 2))
    shell.type("docs/limits.md", "failsoft purge --home work --older-than")
    shell.type("docs/limits.md", "failsoft purge --home work --caller")
    shell.type("docs/runbook.md", "failsoft runs")
    shell.type("docs/runbook.md", "failsoft events", ends=(0, 1))


def test_a_loop_of_ones_own_leaves_letters_and_checkpoints(shell: Shell) -> None:
    (shell.checkout / "loop.py").write_text("\n".join(python_of(LOOP)), "utf-8")
    shell.say("python loop.py")
    assert "failsoft dlq show mine 50" in shell.type(LOOP, "failsoft dlq ls")
    shell.type(LOOP, "failsoft ckpt ls")
    shell.type(LOOP, "failsoft ckpt verify")


def test_releases_are_signed_and_only_signed_ones_are_taken(with_release: Shell) -> None:
    shell = with_release
    shell.say("mkdir ~/keys")
    shell.type("docs/signing.md", "failsoft release new-key")
    shell.type("docs/signing.md", "export FAILSOFT_SIGNING_KEY_FILE")
    shell.type("docs/signing.md", "install -m 644 trusted")
    shell.type("docs/signing.md", "export FAILSOFT_TRUSTED_KEYS")
    refused = shell.say("! failsoft fetch --home work --release tiny")
    assert "sign" in refused, refused
    shell.say("failsoft release sign --home work tiny --vouch --why 'made before we signed'")
    shell.say("failsoft fetch --home work --release tiny")


def test_a_release_travels_by_an_object_store_to_an_empty_machine(with_release: Shell) -> None:
    shell = with_release
    keys = f"AWS_ENDPOINT_URL={S3} AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_DEFAULT_REGION=us-east-1"
    shell.say(f"export {keys} FAILSOFT_HOME=$PWD/work")
    shell.say("python -m moto.server -p 5555 >~/s3.log 2>&1 & sleep 1; curl -s --retry 60 --retry-connrefused " + S3)
    shell.say('python -c \'import boto3; boto3.client("s3").create_bucket(Bucket="bucket")\'')
    shell.type("docs/deploy.md", "failsoft release send", RELEASE)
    shell.say("export FAILSOFT_HOME=$HOME/empty")
    shell.type("docs/deploy.md", "failsoft fetch --release newest")
    assert "tiny" in shell.say("failsoft release ls")
    shell.type("docs/deploy.md", "failsoft fetch --run nightly")


def test_a_release_is_served_held_back_and_given_back(with_release: Shell) -> None:
    shell = with_release
    (shell.checkout / "work" / "alerts.toml").write_text("", "utf-8")
    with shell.hold("README.md", "failsoft serve --home work", until="serving release"):
        assert "tiny" in shell.type("README.md", "failsoft status")
        shell.type("docs/runbook.md", "failsoft status")
        shell.type("README.md", "failsoft degrade")
        asked = shell.say(ASK)
        assert json.loads(asked)["source"] in {"gbdt", "rules"}
        shell.type("README.md", "failsoft restore")
        shell.type("README.md", "failsoft release promote", RELEASE, ends=(0, 1))
        with shell.hold("README.md", "failsoft events", until="02:15"):
            pass
        with shell.hold("README.md", "failsoft alerts run", until="telling"):
            pass
    shell.type("README.md", "failsoft incidents", ends=(0, 1))
    shell.type("README.md", "failsoft report", ends=(0, 1))
    shell.type("README.md", "failsoft purge", ends=(0, 2))
    shell.type("docs/limits.md", "failsoft purge --home work")


def test_tokens_are_changed_as_the_threat_model_says(with_release: Shell) -> None:
    shell = with_release
    token = shell.checkout / "work" / "operator-token"
    token.write_text("former-token-of-the-operators\n", "utf-8")
    shell.type("docs/security.md", "umask 077")
    shell.type("docs/security.md", "(openssl rand")
    assert len(token.read_text("utf-8").splitlines()) == 2
    shell.type("docs/security.md", "head -n 1")
    new = token.read_text("utf-8").strip()
    assert "former" not in new
    shell.say(f"export FAILSOFT_TOKEN={new}")
    shell.type("docs/security.md", "printf 'sha256")
    assert re.fullmatch(r"sha256:[0-9a-f]{64}\n", token.read_text("utf-8"))
    assert token.stat().st_mode & 0o077 == 0


def test_a_model_of_ones_own_is_served_and_the_next_release_promoted(shell: Shell) -> None:
    first, *_, publish = python_of(OWN)
    package = shell.top / "home" / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    blocks = python_of(OWN)
    (package / "my_model.py").write_text("\n".join(blocks[:-1]), "utf-8")
    assert first in "\n".join(blocks[:-1])
    (shell.top / "home" / "publish.py").write_text(f"from my_package.my_model import *\n{publish}", "utf-8")
    shell.say("cd && python publish.py")
    (release,) = [path.name for path in (shell.top / "home" / "work" / "releases").glob("[!.]*") if path.is_dir()]
    shell.type(OWN, "failsoft doctor", ends=(0, 1))
    with shell.hold(OWN, "failsoft serve", until="serving release"):
        assert release in shell.type(OWN, "failsoft status")
        shell.type(OWN, "failsoft degrade")
        shell.type(OWN, "failsoft restore")
        shell.type(OWN, "failsoft release ls")
        shell.type(OWN, "failsoft release promote", {"RELEASE": release}, ends=(0, 1))
        shell.type(OWN, "failsoft release rollback", ends=(0, 1))
    shell.type(OWN, "failsoft simulate")


def test_the_open_inference_protocol_is_spoken_over_http_and_grpc(with_release: Shell) -> None:
    shell = with_release
    with shell.hold("docs/protocol.md", "failsoft serve", until="gRPC at"):
        assert '"inputs"' in shell.type("docs/protocol.md", "curl -s ")
        assert "x-answer-source" in shell.type("docs/protocol.md", "curl -si ")


def test_traces_are_asked_for_by_an_address(with_release: Shell) -> None:
    with with_release.hold("docs/traces.md", "failsoft serve", until="serving release", plus="--home work"):
        pass


def test_a_run_is_trained_looked_into_and_told_to_leave(shell: Shell) -> None:
    """A batch of its first epoch is made ill, so that there is something to look into."""
    ill = """--faults '[{"kind": "nan_batch", "position": 20}]'"""
    shell.type("README.md", "failsoft train", plus=ill, within_s=500.0)
    assert "first" in shell.type("README.md", "failsoft runs")
    assert "20" in shell.type("README.md", "failsoft dlq ls")
    shell.type("README.md", "failsoft dlq replay", ends=(0, 1))
    shell.type("README.md", "failsoft dlq requeue")
    shell.type("README.md", "failsoft goodput")
    shell.type("README.md", "failsoft ckpt verify")
    shell.type("README.md", "failsoft preempt", ends=(0, 1))
    shell.type(
        "docs/trackers.md",
        "failsoft train --home work --track tensorboard",
        plus="--run short --max-batches 4 --no-publish",
    )
    assert list((shell.checkout / "work" / "boards").rglob("events.out.tfevents.*"))
