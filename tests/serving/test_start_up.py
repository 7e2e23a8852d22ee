"""What would fail in a minute is said in a moment, with its mend."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock
from failsoft.ingress import EVERYWHERE, free_ports
from failsoft.serving import start_up
from failsoft.serving.settings import ServeSettings
from failsoft.serving.start_up import check_port, check_start, check_versions, check_writable, local_url
from serve_apps import runtime
from serve_apps.runtime import Running, last_error
from tests.dripping import dripping


def test_all_well_leaves_nothing_to_say(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    assert check_start(Home.find(tmp_path), host="127.0.0.1", port=port) == []
    assert list((tmp_path / "serving").iterdir()) == []


def test_versions_that_nobody_tried_are_remarked_on_with_the_mend() -> None:
    assert check_versions(python=(3, 12), ray="2.60.1") == []
    (remark,) = check_versions(python=(3, 12), ray="2.61.0")
    assert "Ray 2.61.0 was not tried" in remark
    assert "install ray==2.60" in remark
    assert "Python 3.14" in check_versions(python=(3, 14), ray="2.60.0")[0]
    with pytest.raises(ConfigError, match=r"Python 3\.10; use 3\.11 to 3\.13"):
        check_versions(python=(3, 10), ray="2.60.0")


def test_a_home_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "serving").write_text("a file where the folder should be")
    with pytest.raises(ConfigError, match=r"can't be written.*--home"):
        check_writable(Home.find(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_rights_are_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "serving").mkdir(mode=0o500)
    with pytest.raises(ConfigError, match="can't be written"):
        check_writable(Home.find(tmp_path))


@contextmanager
def listening(answer: object, status: int = 200) -> Iterator[int]:
    """Somebody who answers every GET with this, as JSON; the port."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_a_port_where_a_gateway_answers_is_refused_with_its_release() -> None:
    status = {"stage": "serving", "plan": {"subject": "blue", "releases": {"blue": "r7"}}}
    with listening(status) as port, pytest.raises(ConfigError, match=rf"r7, serving.*failsoft status --url .*:{port}"):
        check_port("127.0.0.1", port)


def test_a_port_where_a_gateway_answers_that_is_read_with_a_token_is_refused_with_how_to_read_it() -> None:
    refused = {"title": "Unauthorized", "status": 401}
    with listening(refused, 401) as port, pytest.raises(ConfigError, match=rf"token.*status --url .*:{port} --home"):
        check_port("127.0.0.1", port)


@pytest.mark.parametrize("answer", [{}, [], "hello", {"plan": None}, {"plan": {"subject": "blue", "releases": {}}}])
def test_a_port_where_somebody_else_answers_is_refused(answer: object) -> None:
    with listening(answer) as port, pytest.raises(ConfigError, match="choose another with --port"):
        check_port("127.0.0.1", port)


def test_a_port_whose_holder_says_nothing_is_refused_soon() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(ConfigError, match="choose another with --port"):
            check_port("127.0.0.1", silent.getsockname()[1])


@pytest.mark.parametrize(("host", "port"), [("203.0.113.9", 8000), ("127.0.0.1", 70_000)])
def test_a_host_or_a_port_that_is_none_is_refused(host: str, port: int) -> None:
    with pytest.raises(ConfigError, match="can't be used"):
        check_port(host, port)


def test_this_machine_reaches_all_interfaces_over_loopback() -> None:
    assert local_url(EVERYWHERE, 8000) == "http://127.0.0.1:8000"
    assert local_url("127.0.0.1", 80) == "http://127.0.0.1:80"


def test_the_cause_is_found_in_a_remote_traceback() -> None:
    message = """The deployment failed to start 3 times in a row. See controller logs. Error:
\x1b[36mray::ServeReplica:failsoft:gateway.initialize()\x1b[39m (pid=7, ip=127.0.0.1)
  File "replica.py", line 1, in __init__
ValueError: inner
During handling of the above exception, another exception occurred:
    raise ConfigError(...)
failsoft.errors.ConfigError: text policy has fold = True; known fields are form
"""
    assert last_error(message) == "ConfigError: text policy has fold = True; known fields are form"
    assert last_error("Deploying: 1 of 2 replicas") is None


def test_a_start_that_could_not_see_its_gateways_get_ready_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAILSOFT_TOKEN", raising=False)
    open_to_all = ServeSettings(home=tmp_path)
    assert runtime._reader(open_to_all) == {}
    shut = ServeSettings(home=tmp_path, console_token=True)
    with pytest.raises(ConfigError, match=r"FAILSOFT_VIEWER_TOKEN"):
        runtime._reader(shut)
    token = Home.find(tmp_path).operator_token()
    assert runtime._reader(shut) == {"Authorization": f"Bearer {token}"}


def test_a_stopped_app_leaves_no_release_in_the_memory_of_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[Path] = []
    monkeypatch.setattr("ray.serve.shutdown", lambda: None)
    monkeypatch.setattr(runtime, "stop_controller", stopped.append)
    monkeypatch.setattr(runtime, "memory_folder", lambda home: tmp_path / f"memory of {home.name}")
    for name in ("home", "other"):
        (tmp_path / f"memory of {name}" / "r1").mkdir(parents=True)
    running = Running(url="http://127.0.0.1:1", home=tmp_path / "home")
    running.stop()
    running.stop()
    assert stopped == [tmp_path / "home"] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["memory of other"]


def test_whoever_drips_at_a_taken_port_holds_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_up, "_KNOCK_S", 0.1)
    clock = SystemClock()
    began_s = clock.monotonic_s()
    with dripping() as there, pytest.raises(ConfigError, match="can't be used"):
        check_port("127.0.0.1", there.port)
    assert clock.monotonic_s() - began_s < 15.0
