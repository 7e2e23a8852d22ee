"""Copying by several threads: every byte arrives once, however many threads there are."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.training.checkpoints import copying
from failsoft.training.checkpoints.copying import Copiers, Stretch


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few hundred bytes are many pieces, and worth a helper."""
    monkeypatch.setattr(copying, "_PIECE_BYTES", 16)
    monkeypatch.setattr(copying, "_WORTH_HELP_BYTES", 64)


@settings(deadline=None, max_examples=30)
@given(sizes=st.lists(st.integers(0, 200), max_size=8), threads=st.integers(1, 6), seed=st.integers(0, 99))
def test_what_arrives_is_what_was_there_and_the_gaps_between_stay_untouched(
    sizes: list[int], threads: int, seed: int
) -> None:
    gap = 7
    source = np.random.default_rng(seed).integers(1, 256, sum(sizes) + gap * len(sizes), dtype=np.uint8)
    target, expected = np.zeros_like(source), np.zeros_like(source)
    begins = np.cumsum([0] + [size + gap for size in sizes])
    stretches = []
    for begin, size in zip(begins.tolist(), sizes, strict=False):
        stretches.append(Stretch(target.ctypes.data + begin, source.ctypes.data + begin, size))
        expected[begin : begin + size] = source[begin : begin + size]
    copiers = Copiers()
    copiers.copy(stretches, threads=threads)
    copiers.close()
    assert np.array_equal(target, expected)


def test_one_thread_starts_no_other() -> None:
    source, target = np.ones(1000, np.uint8), np.zeros(1000, np.uint8)
    before = threading.active_count()
    Copiers().copy([Stretch(target.ctypes.data, source.ctypes.data, 1000)], threads=1)
    assert target.all()
    assert threading.active_count() == before


def test_helpers_are_kept_for_the_next_copy_and_end_with_it() -> None:
    source, target = np.ones(1000, np.uint8), np.zeros(1000, np.uint8)
    copiers, before = Copiers(), threading.active_count()
    for _ in range(20):
        copiers.copy([Stretch(target.ctypes.data, source.ctypes.data, 1000)], threads=2)
    assert 1 <= threading.active_count() - before <= 3
    copiers.close()
    assert threading.active_count() == before
    copiers.copy([Stretch(target.ctypes.data, source.ctypes.data, 1000)], threads=2)
    copiers.close()


def test_where_no_thread_can_be_had_the_calling_one_copies_all(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = np.ones(1000, np.uint8), np.zeros(1000, np.uint8)
    copiers, stretches = Copiers(), [Stretch(target.ctypes.data, source.ctypes.data, 1000)]

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refused)
        copiers.copy(stretches, threads=3)
    assert target.all()
    target[:] = 0
    before = threading.active_count()
    copiers.copy(stretches, threads=3)
    assert target.all()
    assert threading.active_count() > before  # the limit was lifted, and helpers come again
    copiers.close()


def test_a_checkpoint_may_be_handed_over_while_the_interpreter_ends() -> None:
    code = (
        "import atexit, numpy\n"
        "from failsoft.training.checkpoints.copying import Copiers, Stretch\n"
        "source = numpy.ones(1 << 25, numpy.uint8); target = numpy.zeros_like(source)\n"
        "stretch = Stretch(target.ctypes.data, source.ctypes.data, source.size)\n"
        "atexit.register(lambda: (Copiers().copy([stretch], threads=2), print(bool(target.all()))))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("True\n", "")


def test_when_the_caller_is_interrupted_no_helper_writes_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    caller = threading.current_thread()

    def interrupted(pieces: deque[Stretch]) -> None:
        if threading.current_thread() is not caller:
            begun.set()
            go_on.wait(10.0)
            ended.set()
            return
        assert begun.wait(10.0)
        threading.Timer(0.05, go_on.set).start()
        raise KeyboardInterrupt

    monkeypatch.setattr(copying, "_work_off", interrupted)
    source, target = np.ones(1000, np.uint8), np.zeros(1000, np.uint8)
    copiers = Copiers()
    with pytest.raises(KeyboardInterrupt):
        copiers.copy([Stretch(target.ctypes.data, source.ctypes.data, 1000)], threads=2)
    assert ended.is_set()
    copiers.close()
