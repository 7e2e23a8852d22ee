"""Words that are overtaken by the next ones, written beside who says them: only the newest of them counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

WordsT = TypeVar("WordsT")


class Newest(Generic[WordsT]):
    """Writes what it was given last, in a thread that is there only while there is something to write.

    The thread ends with its process: storage that hangs keeps nobody from leaving.

    Args:
        write: blocks as long as the storage does; may raise OSError.
    """

    def __init__(self, write: Callable[[WordsT], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._waiting: list[WordsT] = []
        self._thread: threading.Thread | None = None
        self._refusal: OSError | None = None

    def hand_over(self, words: WordsT) -> None:
        """Have these written, instead of those that still wait; returns at once.

        Raises:
            OSError: what was handed over before could not be written, and these are written all the same; or there is
                no thread for it, and they wait for the next ones.
        """
        with self._lock:
            self._waiting[:] = [words]
            if self._thread is None or not self._thread.is_alive():
                self._begin()
            refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def _begin(self) -> None:
        thread = threading.Thread(target=self._work, name="newest words", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no threads left, or the process is ending
            self._thread, self._refusal = None, OSError(f"no thread to write with: {error}")
        else:
            self._thread = thread

    def settle(self) -> None:
        """Wait until nothing is being written any more."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _work(self) -> None:
        while (words := self._next()) is not None:
            try:
                self._write(words)
            except OSError as error:
                self._refusal = error

    def _next(self) -> WordsT | None:
        """None lets the thread end; who hands over meanwhile finds it gone and begins another."""
        with self._lock:
            if not self._waiting:
                self._thread = None
                return None
            return self._waiting.pop()
