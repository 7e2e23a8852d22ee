"""Each event arrives at least once, in order, whatever dies or is away in between."""

from __future__ import annotations

import json
import logging
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from failsoft.alerts.courier import Courier, DeliveryPolicy, post_json
from failsoft.alerts.office import at_work
from failsoft.alerts.settings import Target
from failsoft.health.clock import ManualClock
from tests.alerts.made import Post, book, target
from tests.dripping import dripping


class Office:
    """Hires couriers, and lets them give their files back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hired: list[Courier] = []

    def courier(self, post: Post, *, clock: ManualClock | None = None, to: Target | None = None) -> Courier:
        told, folder = to or target(again_after="1s"), self._folder
        one = Courier(told, folder / "ledger.jsonl", folder / "alerts", clock=clock or ManualClock(), post=post)
        self._hired.append(one)
        return one

    def close(self) -> None:
        for one in self._hired:
            one.close()


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """Of the home at ``tmp_path``."""
    opened = Office(tmp_path)
    yield opened
    opened.close()


def test_a_new_target_hears_of_what_happens_from_now_on(tmp_path: Path, office: Office) -> None:
    ledger, post = book(tmp_path, ManualClock()), Post()
    ledger.record("trip", "long ago")
    first = office.courier(post)
    ledger.record("trip", "now")
    ledger.record("rest", "not wanted")
    assert (first.carry(), [body["why"] for body in post.bodies]) == (1, ["now"])
    assert first.carry() == 0


def test_the_next_one_goes_on_where_it_was(tmp_path: Path, office: Office) -> None:
    ledger, post = book(tmp_path, ManualClock()), Post()
    first = office.courier(post)
    ledger.record("trip", "one")
    first.carry()
    first.close()
    ledger.record("trip", "while nobody was there")
    second = office.courier(post)
    second.carry()
    assert [body["why"] for body in post.bodies] == ["one", "while nobody was there"]


def test_one_that_dies_on_the_way_is_followed_by_one_that_sends_the_same_id(tmp_path: Path, office: Office) -> None:
    ledger, post = book(tmp_path, ManualClock()), Post(200, KeyboardInterrupt())
    first = office.courier(post)
    ledger.record("trip", "one")
    book(tmp_path, ManualClock(), "gateway-2").record("trip", "two")
    with pytest.raises(KeyboardInterrupt):
        first.carry()
    office.courier(post).carry()
    assert [body["why"] for body in post.bodies] == ["one", "one", "two"]
    assert len({body["id"] for body in post.bodies}) == 2


def test_a_target_that_is_away_for_a_moment_is_waited_for_with_growing_patience(tmp_path: Path, office: Office) -> None:
    clock, post = ManualClock(), Post(httpx.ConnectError("refused"), 503, 429)
    ledger, first = book(tmp_path, clock), office.courier(post, clock=clock)
    ledger.record("trip", "one")
    began_s = clock.monotonic_s()
    assert first.carry() == 1
    assert 11.0 < clock.monotonic_s() - began_s < 15.0, "about 1 + 3 + 9 s"


@pytest.mark.parametrize("answer", [301, 400, 401, 404])
def test_a_target_that_does_not_want_it_is_asked_once(
    tmp_path: Path, office: Office, answer: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock, post = ManualClock(), Post(answer)
    ledger, first = book(tmp_path, clock), office.courier(post, clock=clock)
    ledger.record("trip", "one")
    assert (first.carry(), first.passed_over) == (0, 1)
    assert f"it answered {answer}" in caplog.text


def test_a_target_that_stays_away_loses_that_message_and_not_the_next_and_no_address_is_logged(
    tmp_path: Path, office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    tries = DeliveryPolicy().tries
    clock, post = ManualClock(), Post(*[httpx.ConnectError("no http://127.0.0.1:1/hook")] * tries)
    ledger, first = book(tmp_path, clock), office.courier(post, clock=clock, to=target(again_after="1d"))
    ledger.record("trip", "one")
    ledger.record("trip", "two")
    with caplog.at_level(logging.WARNING):
        first.carry()
    assert [body["why"] for body in post.bodies] == ["two"]
    assert "hook" not in caplog.text
    assert "ConnectError" in caplog.text


@pytest.mark.parametrize("kept", [b"", b"{", b'{"file": -1, "bytes": 0}', b'{"file": 1}', b"[]"])
def test_a_torn_position_begins_with_what_happens_from_now_on(tmp_path: Path, office: Office, kept: bytes) -> None:
    ledger, post = book(tmp_path, ManualClock()), Post()
    ledger.record("trip", "long ago")
    (tmp_path / "alerts").mkdir()
    (tmp_path / "alerts" / "pager.json").write_bytes(kept)
    first = office.courier(post)
    ledger.record("trip", "now")
    first.carry()
    assert [body["why"] for body in post.bodies] == ["now"]


def test_an_address_that_is_none_loses_that_message_with_a_word(
    tmp_path: Path, office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    post = Post(httpx.InvalidURL("Invalid IDNA hostname: 'secret'"))
    ledger, first = book(tmp_path, ManualClock()), office.courier(post)
    ledger.record("trip", "one")
    assert (first.carry(), first.passed_over) == (0, 1)
    assert "InvalidURL" in caplog.text
    assert "secret" not in caplog.text


def test_half_characters_are_sent_as_their_code() -> None:
    asked: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        status = post_json(f"http://127.0.0.1:{server.server_port}/", {"why": "a file \udcff"}, 10.0)
        thread.join()
    assert (status, json.loads(asked[0])) == (204, {"why": "a file \udcff"})


def test_a_target_that_drips_its_answer_holds_a_courier_no_longer_than_one_that_is_silent(
    tmp_path: Path, office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    with dripping() as there:
        with pytest.raises(httpx.TimeoutException):
            post_json(f"http://127.0.0.1:{there.port}/hook", {"why": "one"}, 0.5)
        ledger, folder = book(tmp_path, ManualClock()), tmp_path / "alerts"
        policy = DeliveryPolicy(tries=2, timeout_s=0.5)
        to = target(to=f"http://127.0.0.1:{there.port}/hook")
        first = Courier(to, tmp_path / "ledger.jsonl", folder, clock=ManualClock(), post=post_json, policy=policy)
        ledger.record("trip", "one")
        assert (first.carry(), first.passed_over) == (0, 1)
        first.close()
    assert "Timeout" in caplog.text


def test_a_courier_that_stumbles_is_said_once_and_goes_on() -> None:
    class Stumbles(Courier):
        def __init__(self) -> None:
            self.looks, self.is_over = 0, threading.Event()

        def carry(self) -> int:
            self.looks += 1
            if self.looks == 4:
                self.is_over.set()
            if self.looks < 3:
                raise RuntimeError("odd")
            return 0

        def close(self) -> None:
            pass

    said: list[str] = []
    courier = Stumbles()
    with at_work([courier], lambda _courier, error: said.append(str(error))):
        assert courier.is_over.wait(30.0)
    assert said == ["odd"]


def test_what_was_held_back_is_told_when_its_time_is_over(tmp_path: Path, office: Office) -> None:
    clock, post = ManualClock(), Post()
    ledger, first = book(tmp_path, clock), office.courier(post, clock=clock, to=target(again_after="10s"))
    for word in ("one", "two", "three"):
        ledger.record("trip", word)
    first.carry()
    clock.advance(10.0)
    first.carry()
    assert [(body["why"], body["held_back"]) for body in post.bodies] == [("one", 0), ("three", 1)]


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), ssl.SSLError("no certificates")])
def test_what_this_machine_refuses_for_a_moment_is_waited_for_like_a_target_that_is_away(
    tmp_path: Path, office: Office, error: OSError
) -> None:
    post = Post(error)
    ledger, first = book(tmp_path, ManualClock()), office.courier(post)
    ledger.record("trip", "one")
    assert (first.carry(), [body["why"] for body in post.bodies]) == (1, ["one"])


def test_an_error_that_nobody_foresaw_costs_its_own_message_and_none_behind_it(tmp_path: Path, office: Office) -> None:
    post = Post(RuntimeError("odd"))
    first = office.courier(post)
    for name in ("gateway-1", "gateway-2", "gateway-3"):
        book(tmp_path, ManualClock(), name).record("trip", f"of {name}")
    with pytest.raises(RuntimeError, match="odd"):
        first.carry()
    first.carry()
    assert [body["why"] for body in post.bodies] == ["of gateway-2", "of gateway-3"]


def test_one_that_dies_behind_such_an_error_is_followed_by_one_that_sends_what_is_left(
    tmp_path: Path, office: Office
) -> None:
    post = Post(RuntimeError("odd"))
    first = office.courier(post)
    for name in ("gateway-1", "gateway-2"):
        book(tmp_path, ManualClock(), name).record("trip", f"of {name}")
    with pytest.raises(RuntimeError, match="odd"):
        first.carry()
    first.close()
    office.courier(post).carry()
    assert [body["why"] for body in post.bodies] == ["of gateway-1", "of gateway-2"]


def test_an_address_that_left_the_environment_loses_that_message_with_a_word(
    tmp_path: Path, office: Office, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", "http://127.0.0.1:1/hook")
    post = Post()
    ledger, first = book(tmp_path, ManualClock()), office.courier(post, to=target(to="env:HOOK", again_after="1s"))
    monkeypatch.delenv("HOOK")
    ledger.record("trip", "one")
    assert (first.carry(), first.passed_over) == (0, 1)
    assert "$HOOK is not set" in caplog.text


def test_what_happened_before_the_end_is_told_at_the_end(tmp_path: Path, office: Office) -> None:
    post = Post()
    ledger, first = book(tmp_path, ManualClock()), office.courier(post)
    with at_work([first], lambda _courier, error: None):
        ledger.record("trip", "the last word")
    assert [body["why"] for body in post.bodies] == ["the last word"]
