"""Every command that a document tells its reader to type, read off the documents themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELLS = {"", "sh", "bash", "console", "shell"}
COMMENT = re.compile(r"""^((?:[^"'#\\]|\\.|"(?:\\.|[^"\\])*"|'[^']*'|(?<!\s)#)*?)(?:(?:^|\s+)#.*)?$""", re.DOTALL)
TYPISTS = {"type", "hold"}
"""Methods of a drill's shell that carry a documented command out; see ``tests/drills/fresh_checkout.py``."""

NOT_HERE: Mapping[str, str] = {
    "aws ": "needs an account at AWS",
    "ray up": "starts machines at AWS, or needs some by ssh; the files are held against Ray's own schema and checks",
    "ray dashboard": "needs a cluster that `ray up` made",
    "ray exec": "needs a cluster that `ray up` made",
    "ray down": "needs a cluster that `ray up` made",
    "docker ": "no container engine here, and no registry",
    "kubectl ": "no Kubernetes here; the manifests are held against KubeRay's schemas and the commands' own parsers",
    "random() {": "feeds `kubectl create secret`",
    "sbatch ": "no Slurm here; tests/deploy has the script run under a fake scheduler, a drill with a real Ray",
    "scancel ": "no Slurm here; the fake scheduler sends these signals",
    "bash deploy/ray/set-up-node": "makes users and units of this machine; tests/deploy runs it with fakes of them",
    "sudo systemctl": "needs systemd as process 1; the units are verified, and a drill runs the head's command",
    "systemctl stop": "needs systemd as process 1",
    "sudoedit ": "needs systemd as process 1; what it reloads is the documented serve deploy",
    "systemd-analyze security failsoft-ray-head": "needs the unit to be installed; tests/deploy asks it of the file",
    "sudo ufw": "changes this machine's firewall",
    "pip install": "the package is here already; fetching it needs a network",
    "make test": "is what `.ci/run` does",
    "failsoft drill": "minutes each; tests/chaos and tests/drills/test_drilled_apps.py run what it runs",
    "make demo": "tests/drills/test_demo.py runs what it runs",
    "make bench NAME=": "a measurement of ten minutes and more, on an idle machine; its frame and its parts have tests",
    "python -m tests.benchmarks.": "a part of such a measurement, or a picture of what one has left; both have tests",
    "failsoft train --home work --track mlflow": "needs an MLflow server and Weights & Biases; their sinks have tests",
    "serve run serve_apps:app traces=": "its collector is an example; tests/serving/tracing has one of its own",
    "ray job submit --address http://127.0.0.1:8265 -- python -m": "its --gpu needs one; the same without it is typed",
    "failsoft replay ": "needs texts of an incident of some hours ago; test_serving_incident.py replays one",
}
"""Beginnings of commands that can't be carried out on the machine that tests run on, and why."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One command line."""

    document: str
    line: int
    text: str
    """Without its comment, continued lines joined."""

    @property
    def why_not(self) -> str | None:
        """Why it is not carried out; None: a drill types it."""
        return next((why for start, why in NOT_HERE.items() if self.text.startswith(start)), None)


def shown_commands() -> list[Shown]:
    """All of them, by document and line."""
    documents = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
    return [
        one for path in documents for one in commands_in(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    ]


def commands_in(document: str, text: str) -> Iterator[Shown]:
    """Those of a document's shell blocks."""
    for block in FENCE.finditer(text):
        line, held, first = text[: block.start(2)].count("\n"), "", 0
        for typed in block[2].splitlines() if block[1] in SHELLS else ():
            line += 1
            first = first if held else line
            held += typed
            if held.endswith("\\"):
                held = held.removesuffix("\\")
                continue
            found, held = without_comment(" ".join(held.split(" "))), ""
            if found:
                yield Shown(document=document, line=first, text=found)


def without_comment(line: str) -> str:
    """What a shell would run of it."""
    fits = COMMENT.match(line)
    return re.sub(r"\s{2,}", " ", (fits[1] if fits else line).removeprefix("$ ")).strip()


def python_of(document: str) -> list[str]:
    """Its blocks of Python."""
    return [code for language, code in FENCE.findall((ROOT / document).read_text("utf-8")) if language == "python"]


def the_one(document: str, start: str) -> Shown:
    """The document's command of these words, else its only one that begins so.

    Raises:
        LookupError: there is none, or more than one.
    """
    here = [one for one in shown_commands() if one.document == document]
    found = [one for one in here if one.text == start] or [one for one in here if one.text.startswith(start)]
    if len(found) != 1:
        raise LookupError(
            f"{document} shows {len(found)} commands that begin with {start!r}: {[one.text for one in found]}"
        )
    return found[0]


def typed_by(drill: Path) -> list[Shown]:
    """What a drill's file types, read off its calls: the document and the beginning of the command."""
    tree = ast.parse(drill.read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) >= 2]
    typing = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in TYPISTS]
    known = _constants(tree)
    return [the_one(*(_text(word, known) for word in call.args[:2])) for call in typing]


def _constants(tree: ast.Module) -> dict[str, str]:
    """Texts that a file gives names to, each in a line of its own."""
    plain = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
    return {node.targets[0].id: _text(node.value, {}) for node in plain if isinstance(node.value, ast.Constant)}  # type: ignore[attr-defined]  # looked at above


def _text(node: ast.expr, known: Mapping[str, str]) -> str:
    """Of a text, or of a name of one."""
    return known[node.id] if isinstance(node, ast.Name) else str(ast.literal_eval(node))
