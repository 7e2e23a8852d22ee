"""What the documents tell a reader to type on one machine, typed as it stands, in a fresh checkout."""

from __future__ import annotations

import json

import pytest

from tests.documented import python_of
from tests.drills.fresh_checkout import WHY_NOT, Shell

pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or ""),
]
RELEASE = {"RELEASE": "tiny"}
OWN = "docs/serve_your_model.md"
ASK = """curl -s http://127.0.0.1:8000/v1/predict -H 'content-type: application/json' -H 'x-caller-id: KEY' \\
    -d '{"text": "play some jazz"}'"""


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
