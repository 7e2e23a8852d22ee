"""A whole drill of apps that run already: two small HTTP servers, one of which chokes on what is malformed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from failsoft.drills.catalogue import entries
from failsoft.drills.fault import DrillFault, Phase, PlannedFault, Side
from failsoft.drills.serving.answers import Answer
from failsoft.drills.serving.course import Blow, Course
from failsoft.drills.serving.promises import KINDS, SHORT_KINDS
from failsoft.drills.serving.subject import ServeSubject, what_was_seen
from failsoft.drills.serving.target import ServeTarget
from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock


class Sturdy(BaseHTTPRequestHandler):
    """Answers what it understands, and refuses the rest."""

    protocol_version = "HTTP/1.1"
    refusal = 422

    def do_GET(self) -> None:
        self._say(404, {"detail": "no such route"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            text = json.loads(body)["text"]
            said = {"label": "long" if len(text) > 9 else "short"}
        except (ValueError, TypeError, KeyError, RecursionError):
            self._say(self.refusal, {"detail": "not understood"})
            return
        self._say(200, said)

    def _say(self, status: int, said: dict[str, Any]) -> None:
        content = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *_: Any) -> None:
        """Nothing."""


class Choking(Sturdy):
    """Has an error where it should have a refusal."""

    refusal = 500


@contextmanager
def standing(handler: type[Sturdy]) -> Iterator[str]:
    """The address of a server for the time of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def subject(address: str, **more: Any) -> ServeSubject:
    given: dict[str, Any] = {
        "payloads": ({"text": "short"}, {"text": "much longer"}),
        "learn_s": 0.5,
        "settle_within_s": 30.0,
    } | more
    return ServeSubject(ServeTarget(address=address, **given), SystemClock(), kinds=[DrillFault.MALFORMED_WAVE])


@pytest.mark.parametrize(("handler", "survives"), [(Sturdy, True), (Choking, False)])
def test_malformed_requests_are_refused_by_one_app_and_break_the_other(
    handler: type[Sturdy], survives: bool, tmp_path: Path
) -> None:
    with standing(handler) as address:
        drilled = subject(address)
        try:
            reference = drilled.reference(tmp_path)
            assert reference.good, reference.why
            assert "known for 2 of 2" in reference.why
            fault = PlannedFault(kind=DrillFault.MALFORMED_WAVE, phase=Phase.LOAD, at=0.0, arguments={"seconds": 1.0})
            outcome = drilled.trial([fault], tmp_path)
        finally:
            drilled.close()
    assert outcome.survived is survives, outcome.why
    assert (outcome.mend == "") is survives
    assert drilled.notes == ("only from outside: of this app nothing but its address is known",)


def test_an_app_that_does_not_answer_is_no_reference(tmp_path: Path) -> None:
    drilled = subject("http://127.0.0.1:9", settle_within_s=0.3)
    reference = drilled.reference(tmp_path)
    assert not reference.good
    assert "ClientConnectorError" in reference.why
    drilled.close()


def test_of_an_address_only_what_is_done_from_outside_can_be_tried() -> None:
    drilled = ServeSubject(ServeTarget(address="http://127.0.0.1:9"), SystemClock(), full=True)
    able = {kind for kind in drilled.kinds if drilled.able(kind, Phase.LOAD) is None}
    assert able == {DrillFault.OVERLOAD, DrillFault.MALFORMED_WAVE}
    assert drilled.able(DrillFault.OVERLOAD, Phase.FALLBACK) is not None


def test_the_profile_is_short_and_the_full_one_has_all_kinds_in_more_phases() -> None:
    target = ServeTarget(app="a.b:app")
    short, full = ServeSubject(target, SystemClock()), ServeSubject(target, SystemClock(), full=True)
    assert short.side is Side.SERVING
    assert short.kinds == SHORT_KINDS
    assert full.kinds == KINDS
    assert short.phases(DrillFault.KILL_REPLICA) == (Phase.LOAD,)
    assert Phase.ROLLOUT in full.phases(DrillFault.KILL_REPLICA)
    assert ServeSubject(target, SystemClock(), kinds=[DrillFault.DRAIN]).kinds == (DrillFault.DRAIN,)


def test_the_table_that_users_read_lists_what_is_tried_in_its_order() -> None:
    listed = entries(Side.SERVING)
    full = ServeSubject(ServeTarget(app="a.b:app"), SystemClock(), full=True)
    assert [(entry.kind, entry.phases) for entry in listed] == [(kind, full.phases(kind)) for kind in full.kinds]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "give one of them"),
        ({"app": "a:b", "address": "http://x"}, "give one of them"),
        ({"app": "a.b"}, "names no app"),
        ({"address": "127.0.0.1:8000"}, "write one like"),
        ({"app": "a:b", "route": "v1"}, "starts with a slash"),
        ({"app": "a:b", "method": "DELETE"}, "use GET, POST or PUT"),
        ({"app": "a:b", "rate_hz": float("nan")}, "rate_hz"),
        ({"app": "a:b", "patience_s": float("inf")}, "patience_s"),
        ({"app": "a:b", "slots": 0}, "slots"),
    ],
)
def test_a_target_that_cannot_be_meant_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ServeTarget(**given)


def test_what_callers_read_is_counted_most_often_first() -> None:
    lost = Answer(sent_s=0.0, done_s=1.0, status=500, reason="Internal Server Error")
    shed = Answer(sent_s=0.0, done_s=1.0, status=200, source="rules", reason="queue is full")
    blow = Blow(kind=DrillFault.OVERLOAD, struck_s=0.0, mended_s=1.0, words="64 clients", reached=True)
    course = Course(answers=[lost, lost, shed], blows=[blow], began_s=0.0, whole_s=2.0, rate_hz=1.0)
    assert what_was_seen(course, ["ledger: x"]) == (
        "64 clients",
        "2 × 500 Internal Server Error",
        "1 × queue is full",
        "ledger: x",
    )
