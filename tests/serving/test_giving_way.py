from __future__ import annotations

import os
import sys
import threading

import pytest

from failsoft.serving.giving_way import giving_way


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux knows the niceness of a thread")
def test_only_the_thread_that_is_waited_for_by_nobody_steps_back() -> None:
    before = niceness()
    with giving_way("loading") as threads:
        assert threads.submit(niceness).result() == min(19, before + 5)
        assert threads.submit(lambda: threading.current_thread().name).result().startswith("loading")
    assert niceness() == before
