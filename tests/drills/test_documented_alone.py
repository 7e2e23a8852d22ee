"""What the documents tell a reader to type on one machine, typed as it stands: what needs neither Ray nor an app."""

from __future__ import annotations

import re

import pytest

from tests.documented import python_of
from tests.drills.fresh_checkout import WHY_NOT, Shell

pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or ""),
]
RELEASE = {"RELEASE": "tiny"}
LOOP = "docs/guard_your_loop.md"
S3 = "http://127.0.0.1:5555"


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
