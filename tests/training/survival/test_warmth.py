"""Whether spares may be ordered is a judgement on numbers; warming up is loading by name."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import read_ledger
from failsoft.training.survival.warmth import (
    SPARE_READY,
    Script,
    SparePolicy,
    Surroundings,
    Tickets,
    available_bytes,
    load,
    ordered,
    own_bytes,
    surroundings,
    variables,
    warm_up,
)

GIB = 2**30
ROOMY = Surroundings(available_bytes=20 * GIB, spare_bytes=GIB // 4)


def test_a_worker_orders_its_share_when_all_spares_of_the_node_fit() -> None:
    order = ordered(SparePolicy(), ROOMY, total=8, count=1)
    assert order.count == 1
    assert "8 spares" in order.why


@pytest.mark.parametrize(
    ("here", "total", "said"),
    [
        pytest.param(ROOMY, 9, "more than 10%", id="together they take too much"),
        pytest.param(Surroundings(available_bytes=None, spare_bytes=GIB), 1, "doesn't say", id="free memory unknown"),
        pytest.param(Surroundings(available_bytes=GIB, spare_bytes=None), 1, "doesn't say", id="size unknown"),
        pytest.param(Surroundings(available_bytes=0, spare_bytes=GIB), 1, "more than", id="nothing is free"),
    ],
)
def test_none_is_ordered_where_memory_is_short_or_unknown(here: Surroundings, total: int, said: str) -> None:
    order = ordered(SparePolicy(), here, total=total, count=1)
    assert order.count == 0
    assert said in order.why


@given(
    available=st.integers(0, 2**40), spare=st.integers(1, 2**34), total=st.integers(1, 64), share=st.floats(0.01, 1.0)
)
def test_what_is_ordered_never_takes_more_than_its_share(available: int, spare: int, total: int, share: float) -> None:
    here = Surroundings(available_bytes=available, spare_bytes=spare)
    order = ordered(SparePolicy(memory_fraction=share), here, total=total, count=1)
    assert order.count == 0 or spare * total <= share * available


@pytest.mark.parametrize(
    "odd",
    [
        {"per_worker": -1},
        {"per_worker": 5},
        {"after_s": -1.0},
        {"after_s": float("nan")},
        {"memory_fraction": 0.0},
        {"memory_fraction": float("nan")},
        {"memory_fraction": 1.5},
        {"keep_s": 1.0},
        {"keep_s": float("nan")},
    ],
)
def test_a_policy_that_means_nothing_is_refused_by_name(odd: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(odd))):
        SparePolicy(**odd)  # type: ignore[arg-type]


def test_free_memory_is_read_as_linux_tells_it(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  100 kB\nMemAvailable:   64 kB\n", "utf-8")
    assert available_bytes(meminfo) == 65536
    meminfo.write_text("MemTotal:  100 kB\n", "utf-8")
    assert available_bytes(meminfo) is None
    assert available_bytes(tmp_path / "absent") is None


def test_a_process_is_as_large_as_what_it_shares_with_no_file(tmp_path: Path) -> None:
    statm = tmp_path / "statm"
    statm.write_text("900 500 200 1 0 300 0", "utf-8")
    assert own_bytes(statm) == 300 * os.sysconf("SC_PAGE_SIZE")
    statm.write_text("nonsense", "utf-8")
    assert own_bytes(statm) is None
    assert own_bytes(tmp_path / "absent") is None
    assert (surroundings().spare_bytes or 0) > 2**20


def test_each_ticket_is_taken_once_however_many_reach_for_it(tmp_path: Path) -> None:
    tickets = Tickets(tmp_path / "node")
    assert not tickets.taken()
    tickets.lay_out(5)
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: tickets.taken(), range(40)))
    assert sum(taken) == 5


def test_a_script_survives_its_text_and_equal_scripts_have_equal_texts() -> None:
    script = Script(modules=("a", "b"), ledger="/x/ledger.jsonl", run="r")
    assert Script.read(script.text()) == script
    assert script.text() == Script(run="r", ledger="/x/ledger.jsonl", modules=("a", "b")).text()


def test_a_spare_says_that_it_is_ready_and_what_it_could_not_load(tmp_path: Path) -> None:
    (tmp_path / "broken_by_hand.py").write_text("raise RuntimeError('half written')", "utf-8")
    sys.path.insert(0, str(tmp_path))
    try:
        ledger = tmp_path / "ledger.jsonl"
        modules = ("json", "no_such_module", "broken_by_hand")
        warm_up(Script(modules=modules, ledger=str(ledger), run="r"), ManualClock())
    finally:
        sys.path.remove(str(tmp_path))
    (event,) = read_ledger(ledger).events
    assert (event.kind, event.subject, event.data["process"]) == (SPARE_READY, "r", os.getpid())
    assert event.data["missing"].keys() == {"no_such_module", "broken_by_hand"}
    assert "half written" in event.data["missing"]["broken_by_hand"]


def test_what_is_loaded_is_there_and_nothing_is_missing() -> None:
    assert load(["json", "json.decoder"]) == {}
    assert json is sys.modules["json"]


def test_variables_are_put_back_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILSOFT_TEST_KEPT", "before")
    monkeypatch.delenv("FAILSOFT_TEST_NEW", raising=False)

    def failing() -> None:
        assert (os.environ["FAILSOFT_TEST_KEPT"], os.environ["FAILSOFT_TEST_NEW"]) == ("now", "now")
        raise KeyError

    with pytest.raises(KeyError), variables({"FAILSOFT_TEST_KEPT": "now", "FAILSOFT_TEST_NEW": "now"}):
        failing()
    assert os.environ["FAILSOFT_TEST_KEPT"] == "before"
    assert "FAILSOFT_TEST_NEW" not in os.environ
