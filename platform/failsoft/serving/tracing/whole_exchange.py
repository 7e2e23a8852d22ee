"""One exchange of ``requests`` within a time as a whole.

A timeout of ``requests`` is for each wait on the socket: a server that drips a byte of a header now and then holds its
caller for as long as it likes. Here a timer takes the socket away from the exchange when the time is over.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import ReadTimeout, RequestException
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager, ProxyManager
from urllib3.connection import HTTPConnection, HTTPSConnection


class WholeExchange(HTTPAdapter):
    """Sends one request at a time; mount it on a session of one thread.

    Args:
        within_s: from the start of a request until its answer's headers are there. Where the request itself is given
            less time, that. Looking up a name is the system's, and is not cut short.
    """

    def __init__(self, within_s: float) -> None:
        self._within_s, self._watch = within_s, _Watch()
        super().__init__()

    def init_poolmanager(self, *args: Any, **settings: Any) -> None:
        """Called by ``requests``."""
        super().init_poolmanager(*args, **settings)
        self._watch.connections_of(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **settings: Any) -> ProxyManager:
        """Called by ``requests``."""
        made: ProxyManager = super().proxy_manager_for(*args, **settings)
        self._watch.connections_of(made)
        return made

    def send(self, request: PreparedRequest, *args: Any, **settings: Any) -> Response:
        """Called by ``requests``.

        Raises:
            requests.exceptions.ReadTimeout: the time is over.
        """
        given_s = settings.get("timeout")
        within_s = min(self._within_s, given_s) if isinstance(given_s, int | float) else self._within_s
        late = ReadTimeout(f"timeout: no whole answer within {within_s:g} s", request=request)
        with self._watch.over_after(within_s):
            try:
                answer = super().send(request, *args, **settings)
            except RequestException as error:
                if not self._watch.is_over:
                    raise
                raise late from error
            if self._watch.is_over:  # headers that were cut off read like whole ones
                answer.close()
                raise late
            return answer


class _Watch:
    """Over the socket of the exchange that goes on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.is_over = False
        """Whether its time is."""

    @contextmanager
    def over_after(self, seconds: float) -> Iterator[None]:
        """For the time of the block."""
        self.is_over = False
        timer = threading.Timer(seconds, self._cut)
        timer.daemon = True  # the end of the process waits for no collector
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:
                self._socket = None

    def holds(self, used: Any) -> None:
        """The exchange goes on by this socket; one that comes when all is over is of no use any more."""
        with self._lock:
            self._socket = used if isinstance(used, socket.socket) else None
            if self.is_over:
                self._shut()

    def _cut(self) -> None:
        with self._lock:
            self.is_over = True
            self._shut()

    def _shut(self) -> None:
        """Whoever waits for it reads its end. Past TLS, which would want to say goodbye."""
        if self._socket is not None:
            with suppress(OSError):  # it was closed in between
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def connections_of(self, manager: PoolManager) -> None:
        """Have all that it opens come to this watch."""
        watch = self

        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                watch.holds(self.sock)

            def getresponse(self) -> Any:
                watch.holds(self.sock)  # also of one that was kept from the exchange before
                return super().getresponse()

        class Secret(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                watch.holds(self.sock)

            def getresponse(self) -> Any:
                watch.holds(self.sock)
                return super().getresponse()

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecretPool(HTTPSConnectionPool):
            ConnectionCls = Secret

        manager.pool_classes_by_scheme = {"http": PlainPool, "https": SecretPool}
