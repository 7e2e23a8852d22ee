"""What the benchmarks of serving make of replies is proven on written ones; nothing is started here."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from tests.benchmarks.bench_gateway import BARE, CLAIMS, OURS, Board
from tests.benchmarks.gateway_contenders import Level
from tests.benchmarks.incident_app import WRONG, bad_logits
from tests.benchmarks.incident_traffic import Reply, judged, read
from tests.benchmarks.load_client import Connection, request_bytes, source_of
from tests.serving.tiny_release import CALIBRATION


def level(p50_s: float, each_s: float) -> Level:
    return Level(p50_s=p50_s, p99_s=9.0, each_s=each_s, statuses={"200": 1}, sources={})


def test_a_ratio_of_throughputs_is_that_of_the_seconds_upside_down() -> None:
    board = Board()
    for ours, bare in ((0.001, 0.004), (0.002, 0.008), (0.001, 0.002)):
        board.add(OURS, 64, level(0.1, ours))
        board.add(BARE, 64, level(0.2, bare))
    found = board.ratio(CLAIMS["throughput_bare_over_nets"])
    assert found is not None
    assert found.value == pytest.approx(0.25), "bare answers a quarter of what the nets do"
    assert board.ratio(CLAIMS["p50_nets_over_bare"]) is None, "nobody stood with one client"


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return False


def connected() -> tuple[Connection, list[tuple[int, bytes]]]:
    answers: list[tuple[int, bytes]] = []
    connection = Connection(lambda _, status, body: answers.append((status, body)))
    connection.connection_made(Wire())
    connection.send(request_bytes("h", b"{}"))
    return connection, answers


WITH_LENGTH = b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"source": "primary"}'
CHUNKED = b"HTTP/1.1 429 Many\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
CHUNKS = b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0a;x=1\r\n{"source":\r\nB\r\n "primary"}\r\n0\r\n\r\n'


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [(WITH_LENGTH, 200, b'{"source": "primary"}'), (CHUNKED, 429, b"{}"), (CHUNKS, 200, b'{"source": "primary"}')],
)
def test_an_answer_is_told_once_and_whole_however_it_is_cut(answer: bytes, status: int, body: bytes, size: int) -> None:
    connection, answers = connected()
    for start in range(0, len(answer), size):
        assert connection.out
        connection.data_received(answer[start : start + size])
    assert answers == [(status, body)]
    assert not connection.out


def test_a_connection_lost_with_a_request_out_is_a_lost_request_and_one_without_is_none() -> None:
    connection, answers = connected()
    connection.connection_lost(None)
    connection.connection_lost(None)
    assert answers == [(0, b"")]


def test_who_answered_is_read_from_the_body() -> None:
    assert source_of(WITH_LENGTH) == "primary"
    assert source_of(b"{}") == "-"


def reply(
    done_s: float, *, stage: str = "serving", intent: str = "play_music", refused: bool = False, status: int = 200
) -> Reply:
    source = "rules" if refused or stage != "serving" else "primary"
    return Reply(
        sent_s=done_s - 0.01, done_s=done_s, status=status, source=source, intent=intent, stage=stage, refused=refused
    )


BEFORE = [reply(0.1), reply(0.2)]
DURING = [reply(1.1, intent=WRONG), reply(1.2), reply(1.3, refused=True), reply(1.4, intent=WRONG)]
LEFT = [reply(1.5, stage="degraded"), reply(1.53, intent=WRONG), reply(1.6, stage="degraded"), reply(1.7, status=0)]


def test_detection_and_switching_are_told_apart() -> None:
    found = judged([*LEFT, *BEFORE, *DURING], broken_s=1.0)
    assert found is not None
    assert (found.calls, found.let_through, found.lost, found.asked) == (4, 3, 1, 10)
    assert found.detection_s == pytest.approx(0.4)
    assert found.switch_s == pytest.approx(0.03)
    assert found.late_s == pytest.approx(0.02), "the last one that met the old plan was sent 10 ms before its answer"


@pytest.mark.parametrize(
    "replies",
    [
        pytest.param([], id="nothing came"),
        pytest.param([*BEFORE, reply(1.5)], id="no bad answer"),
        pytest.param([*BEFORE, *DURING], id="no replica left the model"),
        pytest.param(LEFT[:1], id="only the fallback answered"),
    ],
)
def test_no_incident_is_none(replies: list[Reply]) -> None:
    assert judged(replies, broken_s=1.0) is None


@pytest.mark.parametrize(("status", "body", "counted"), [(200, b"{}", 200), (200, b"<html>", 0), (503, b"", 503)])
def test_a_body_that_is_no_answer_is_a_lost_request(status: int, body: bytes, counted: int) -> None:
    assert read(status, body, sent_s=0.0, done_s=1.0).status == counted


@pytest.mark.parametrize("confidence", [0.5, 0.64])
def test_a_bad_answer_is_as_sure_as_it_was_meant_to_be(confidence: float) -> None:
    logits_C = np.array(bad_logits(["a", WRONG, "c", "d"], confidence)) / CALIBRATION.temperature  # C intents
    shares_C = np.exp(logits_C) / np.exp(logits_C).sum()
    assert math.isclose(shares_C[1], confidence, rel_tol=1e-9)
    assert shares_C.argmax() == 1
