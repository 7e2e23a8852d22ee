"""Words that are overtaken are not written; who says them never waits, and a refusal is heard of with the next ones."""

from __future__ import annotations

import threading

import pytest

from failsoft.health.newest import Newest


class Disk:
    """Takes a word when it is let; refuses some."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.begun, self.back = threading.Event(), threading.Event()
        self.refuses = False

    def write(self, word: int) -> None:
        self.begun.set()
        assert self.back.wait(timeout=60.0)
        if self.refuses:
            raise OSError(28, "No space left on device")
        self.written.append(word)


def test_while_the_disk_hangs_only_the_newest_words_wait_for_it() -> None:
    disk = Disk()
    newest = Newest(disk.write)
    newest.hand_over(1)
    assert disk.begun.wait(timeout=60.0)
    for word in range(2, 6):
        newest.hand_over(word)
    assert disk.written == []
    disk.back.set()
    newest.settle()
    assert disk.written == [1, 5]


def test_words_after_a_pause_are_written_too() -> None:
    disk = Disk()
    disk.back.set()
    newest = Newest(disk.write)
    for word in (1, 2):
        newest.hand_over(word)
        newest.settle()
    newest.settle()
    assert disk.written == [1, 2]


def test_a_disk_that_refuses_is_heard_of_with_the_next_words_which_are_written_all_the_same() -> None:
    disk = Disk()
    disk.refuses = True
    disk.back.set()
    newest = Newest(disk.write)
    newest.hand_over(1)
    newest.settle()
    disk.refuses = False
    with pytest.raises(OSError, match="No space left"):
        newest.hand_over(2)
    newest.settle()
    newest.hand_over(3)
    newest.settle()
    assert disk.written == [2, 3]


def refuse_to_start(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_where_no_thread_can_be_had_the_words_wait_for_one_and_that_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    disk.back.set()
    newest = Newest(disk.write)
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refuse_to_start)
        with pytest.raises(OSError, match="can't start new thread"):
            newest.hand_over(1)
        newest.settle()
    newest.hand_over(2)
    newest.settle()
    assert disk.written == [2]
