"""What every test shares: one private Ray, the real corpora where they lie, and no network of chance."""

from __future__ import annotations

import gc
import os
import secrets
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
DATA_VARIABLE = "FAILSOFT_TEST_DATA"
_NODE_TRIES = 5
_Node = TypeVar("_Node")

pytest.register_assert_rewrite("tests.console")  # its helpers assert much, and a bare AssertionError tells nothing

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background of a shell: what tests start would
    signal.signal(signal.SIGINT, signal.default_int_handler)  # inherit that, and hear no Ctrl-C

# Ray reads its settings once, when it is loaded, so they are in place before any test imports it.
os.environ["RAY_AUTH_MODE"] = "token"  # nobody else on this machine may send code to a test's Ray
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] = "0.25"
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 -- Ray's name; its 15 starves workers beside anything else that runs
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ["FAILSOFT_HOST_MEMORY"] = "off"  # a test that kills a run leaves nothing in /dev/shm; some turn it on
os.environ.pop("RAY_ADDRESS", None)  # a test never joins a cluster that it did not start

# A shared two-core machine stalls now and then, and a stall is no bug; CI tries the same examples each time.
settings.register_profile("failsoft", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("failsoft")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what only a GPU can prove."""
    need_gpu = [item for item in items if item.get_closest_marker("cuda")]
    if not need_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in need_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and torch sees none here"))


@pytest.fixture(scope="session")
def ray_folder() -> Iterator[Path]:
    """A short path for Ray's files: its sockets must fit in 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="fs-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def ray_local(ray_folder: Path) -> Iterator[None]:
    """A Ray of this test run's own, with 4 slots, on loopback; gone when the run ends."""
    import ray

    def start() -> None:
        ray.shutdown()  # what is left of a try before
        ray.init(
            address="local",
            num_cpus=4,
            namespace="failsoft-tests",
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=256 * 1024 * 1024,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(ray_folder),
        )

    node_in_time(start)
    yield
    ray.shutdown()


def node_in_time(start: Callable[[], _Node]) -> _Node:
    """Ray gives a node half a minute to come up; on a machine that starts other things, too, it may take more."""
    for _ in range(_NODE_TRIES - 1):
        before = _children()
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
        _end(_children() - before)  # Ray ends them with this process only, and they would slow the next try
    return start()


def _end(pids: set[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with warnings.catch_warnings():  # who started them forgets them without having waited for them
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _children() -> set[int]:
    """Processes that this one started; none where the system does not tell."""
    found = set[int]()
    for told in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread that has just ended
            found |= set(map(int, told.read_text().split()))
    return found


def data_folder(name: str) -> Path:
    """The folder of a published corpus: below ``$FAILSOFT_TEST_DATA``, else in ``shared/data`` beside the checkout."""
    given = os.environ.get(DATA_VARIABLE)
    return (Path(given) if given else ROOT.parent / "shared" / "data") / name


def _corpus(name: str) -> Path:
    folder = data_folder(name)
    if not folder.is_dir():
        pytest.skip(f"the {name} corpus is absent: no folder {folder}; set {DATA_VARIABLE} to the folder that holds it")
    return folder


@pytest.fixture(scope="session")
def snips_dir() -> Path:
    """The SNIPS corpus in its published JSON files."""
    return _corpus("snips")


@pytest.fixture(scope="session")
def clinc_dir() -> Path:
    """The CLINC150 corpus in its published JSON file."""
    return _corpus("clinc150")
