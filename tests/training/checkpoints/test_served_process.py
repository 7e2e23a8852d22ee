"""The wire between the training and a process that it started: who is waited for rests no more, and is told once."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import pytest

from failsoft.health.clock import ManualClock, SystemClock
from failsoft.training.checkpoints.served_process import Wire
from failsoft.training.checkpoints.writer_link import HURRY, MIRROR, NO_MEMORY, Message, ProcessLink, send, take

ORDER: Message = {"do": "fetch"}


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Wire]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, Wire(theirs, ManualClock(), training=os.getppid())


def framed(message: Message) -> bytes:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(ours, message)
        return theirs.recv(65536)


@pytest.mark.parametrize("cut", range(len(framed(HURRY)) + 1))
def test_an_order_that_is_waited_for_is_hurried_however_the_word_for_it_comes(
    cut: int, ends: tuple[socket.socket, Wire]
) -> None:
    training, wire = ends
    word = framed(HURRY)
    training.sendall(framed(ORDER) + word[:cut])
    message, _memory = next(wire.orders())
    assert message == ORDER
    training.sendall(word[cut:])
    wire.beat()
    assert wire._pace.hurried


def test_the_order_after_one_that_was_hurried_is_carried_out_at_ease(ends: tuple[socket.socket, Wire]) -> None:
    training, wire = ends
    training.sendall(framed(ORDER) + framed(HURRY) + framed(HURRY))
    orders = wire.orders()
    next(orders)
    training.sendall(framed(HURRY) + framed(ORDER))
    next(orders)
    assert not wire._pace.hurried


def test_a_thousand_words_of_hurry_to_a_process_that_hangs_hold_nobody_up() -> None:
    link = ProcessLink(MIRROR)
    try:
        os.kill(link.process.pid, signal.SIGSTOP)
        for _ in range(2):
            link.send(ORDER, NO_MEMORY)
            began_s = SystemClock().monotonic_s()
            for _ in range(1000):
                link.hurry()
            assert SystemClock().monotonic_s() - began_s < 2.0
    finally:
        link.stop()


def test_each_order_is_hurried_anew() -> None:
    ours, theirs = socket.socketpair()
    link = ProcessLink(MIRROR)
    with ours, theirs:
        theirs.settimeout(5.0)
        own, link._socket = link._socket, ours
        for _ in range(2):
            link.send(ORDER, NO_MEMORY)
            link.hurry()
            link.hurry()
        heard = bytearray(theirs.recv(65536))
        assert [take(heard) for _ in range(5)] == [ORDER, HURRY, ORDER, HURRY, None]
        link._socket = own
        link.stop()
