"""A server that answers one byte at a time, so that no wait for it is ever long and its answer is never whole."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ssl import SSLContext

WORDS = b"HTTP/1.1 200 OK\r\nx-padding: "
_EVERY_S, _BYTES = 0.02, 1500
"""Half a minute, and then it is whole: a caller without a deadline fails its test instead of holding it."""
_END = b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Dripping:
    """Where it is, and what it heard."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked = 0


@contextmanager
def dripping(tls: SSLContext | None = None) -> Iterator[Dripping]:
    """On a port of its own, for the time of the block."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = Dripping(listener.getsockname()[1])

        def take() -> None:
            with suppress(OSError):  # the end of the block closes the listener
                while not over.is_set():
                    taken, _ = listener.accept()
                    threading.Thread(target=answer, args=(taken,), daemon=True).start()

        def answer(taken: socket.socket) -> None:
            with suppress(OSError), taken if tls is None else tls.wrap_socket(taken, server_side=True) as caller:
                caller.recv(65536)
                there.asked += 1
                for byte in WORDS + b"x" * _BYTES:
                    if over.wait(_EVERY_S):
                        return
                    caller.sendall(bytes([byte]))
                caller.sendall(_END)

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        try:
            yield there
        finally:
            over.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(10.0)
