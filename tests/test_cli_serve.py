"""What ``failsoft serve`` says first can be pasted as it is, whatever an own app's example holds."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from failsoft.cli.serve import _say_grpc, _say_hello
from failsoft.ingress import LOOPBACK, Entry, Ingress

STATUS = {
    "plan": {"releases": {"blue": "r-20260301"}, "subject": "blue"},
    "health": {"rule": "20% [of 100]"},
}


@pytest.mark.parametrize("example", [[True, False], {"text": "what's up [/bold]"}, [None], [70.0, 3.0]])
def test_the_first_request_is_printed_whole(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Lists of words were taken for markup: gone from the line, or the end of the command."""
    way = Entry(ingress=Ingress.SAFE, host=LOOPBACK)
    _say_hello("http://127.0.0.1:8000", STATUS, way, "drill", body=json.dumps({"instance": example}))
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith("next: ")]
    assert json.loads(shlex.split(line)[-1]) == {"instance": example}
    assert "20% [of 100]" in said


@pytest.mark.parametrize(
    ("ingress", "host", "words"),
    [
        (Ingress.SAFE, LOOPBACK, ("port 9000 listens on all interfaces", "calls from elsewhere are refused")),
        (Ingress.FAST, LOOPBACK, ("each gateway's own port", "calls from elsewhere are refused")),
        (Ingress.SAFE, "10.0.0.7", ("port 9000 listens on all interfaces", "whoever reaches it is answered")),
    ],
)
def test_a_port_that_serve_opens_on_all_interfaces_is_said(
    ingress: Ingress, host: str, words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _say_grpc(9000, Entry(ingress=ingress, host=host))
    said = " ".join(capsys.readouterr().out.split())
    assert all(word in said for word in words), said
    _say_grpc(None, Entry(ingress=ingress, host=host))
    assert capsys.readouterr().out == ""
