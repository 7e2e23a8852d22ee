"""Copying by several threads: every byte arrives once, however many threads there are."""

from __future__ import annotations

import threading

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
