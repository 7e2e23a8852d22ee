"""``failsoft alerts`` with a real hook and a real notice."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from failsoft.artifacts.home import Home
from failsoft.cli import alerts as _alerts  # noqa: F401 -- hangs its commands on the app
from failsoft.cli.app import app
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.survival.notice import read_notice
from tests.drills.cluster import free_ports

Told = queue.Queue[dict[str, Any]]


@pytest.fixture
def hook() -> Iterator[tuple[str, Told]]:
    """Somebody who is told, and what of."""
    told: Told = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/hook/SECRET", told
    server.shutdown()
    server.server_close()


def write_settings(home: Path, url: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "alerts.toml").write_text(
        f'[[send]]\nname = "pager"\nto = "{url}"\n\n[[receive]]\nalert = "Drop"\naction = "stop_run"\n'
    )


def failsoft(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*arguments])
    return done.exit_code, done.output


def test_a_target_is_tried_and_what_holds_is_said_without_its_address(tmp_path: Path, hook: tuple[str, Told]) -> None:
    url, told = hook
    write_settings(tmp_path, url)
    assert failsoft("alerts", "test", "pager", "--home", str(tmp_path)) == (0, "pager answered 204\n")
    assert told.get(timeout=10.0)["kind"] == "test"
    code, said = failsoft("alerts", "check", "--home", str(tmp_path))
    assert (code, "pager" in said, "stop_run" in said, "SECRET" in said) == (0, True, True, False)


@contextmanager
def at_work(home: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "failsoft.cli.main", "alerts", "run", "--home", str(home), "--port", str(port)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30.0) == 0


def test_one_process_tells_of_events_and_takes_alerts_and_only_one_at_a_time(
    tmp_path: Path, hook: tuple[str, Told]
) -> None:
    url, told = hook
    write_settings(tmp_path, url)
    home, (port,) = Home(root=tmp_path), free_ports(1)
    home.run("first").mkdir(parents=True)
    with at_work(tmp_path, port) as process:
        assert process.stdout is not None
        assert "pager" in process.stdout.readline()
        assert "taking alerts" in process.stdout.readline()
        Ledger(home.ledger, SystemClock(), side=Side.TRAINING, subject="first").record("hang", "rank 1 stands still")
        assert told.get(timeout=30.0)["why"] == "rank 1 stands still"
        notice = {"alerts": [{"status": "firing", "labels": {"alertname": "Drop", "run": "first"}}]}
        headers = {"Authorization": f"Bearer {home.alert_token()}"}
        sent = httpx.post(f"http://127.0.0.1:{port}/v1/alerts", json=notice, headers=headers, timeout=30.0)
        assert (sent.status_code, read_notice(home.run("first")) is not None) == (200, True)
        code, said = failsoft("alerts", "run", "--home", str(tmp_path), "--port", str(free_ports(1)[0]))
        assert code != 0, said
