"""A live S3 server (moto) on loopback, in this process; what clients in other processes need is in the environment."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3  # type: ignore[import-untyped]  # it has no types
import pytest
from moto.server import ThreadedMotoServer

Environ = dict[str, Any]
BUCKET = "runs"
PATIENCE_S = 120.0


class Gate:
    """Holds the first request that fits until it is opened; all others pass."""

    def __init__(self, app: Callable[[Environ, Any], Iterable[bytes]]) -> None:
        self._app = app
        self._fits: Callable[[Environ], bool] | None = None
        self.reached, self.opened = threading.Event(), threading.Event()

    def hold(self, fits: Callable[[Environ], bool]) -> None:
        """From here on."""
        self._fits = fits
        self.reached.clear()
        self.opened.clear()

    def __call__(self, environ: Environ, start: Any) -> Iterable[bytes]:
        if self._fits is not None and self._fits(environ):
            self._fits = None
            self.reached.set()
            self.opened.wait(PATIENCE_S)
        return self._app(environ, start)


class S3:
    """The server, with one empty bucket."""

    def __init__(self, endpoint: str, gate: Gate) -> None:
        self.endpoint = endpoint
        self.gate = gate
        self.client: Any = boto3.client("s3", endpoint_url=f"http://{endpoint}", region_name="us-east-1")
        self.client.create_bucket(Bucket=BUCKET)

    def url(self, prefix: str) -> str:
        """As a user would give it."""
        where = self.endpoint.replace(":", "%3A")
        return f"s3://{BUCKET}/{prefix}?endpoint_override={where}&scheme=http&region=us-east-1"

    def keys(self, prefix: str) -> list[str]:
        """Of all objects below, but for those that only mark a folder."""
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        keys = sorted(str(one["Key"]) for one in found)
        return [key.removeprefix(f"{prefix}/") for key in keys if not key.endswith("/")]

    def uploads(self) -> int:
        """Multipart uploads that nobody has finished."""
        return len(self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []))


@contextmanager
def serving_s3() -> Iterator[S3]:
    """A server for the time of the block."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "somebody")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "nothing secret")
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            host, port = server.get_host_and_port()
            running: Any = server._server
            gate = Gate(running.app)
            running.app = gate
            yield S3(f"{host}:{port}", gate)
        finally:
            server.stop()
