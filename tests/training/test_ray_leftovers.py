from __future__ import annotations

from typing import Any

import pytest
from ray.core.generated.gcs_pb2 import ActorTableData  # type: ignore[attr-defined]  # generated

from failsoft.training.ray_leftovers import idle_cleaners

MINE, OVER, OTHERS = b"\x01\0\0\0", b"\x02\0\0\0", b"\x03\0\0\0"


def controller(worker: bytes, *, dead: bool) -> Any:
    made = ActorTableData(actor_id=b"c" + worker, class_name="ray.train.TrainController", job_id=MINE)
    made.address.worker_id = worker
    made.state = ActorTableData.DEAD if dead else ActorTableData.ALIVE
    return made


def cleaner(owner: bytes, **differs: Any) -> Any:
    given = {
        "actor_id": b"x" + owner,
        "class_name": "PlacementGroupCleaner",
        "is_detached": True,
        "job_id": MINE,
        "state": ActorTableData.ALIVE,
    }
    made = ActorTableData(**given | differs)
    made.owner_address.worker_id = owner
    made.address.worker_id = b"of " + owner
    return made


def idle(*actors: Any) -> list[bytes]:
    return idle_cleaners(actors, jobs=frozenset({MINE.hex(), OVER.hex()}))


def test_the_cleaner_of_a_dead_controller_is_idle_and_that_of_a_living_one_is_not() -> None:
    assert idle(controller(b"1", dead=True), cleaner(b"1"), controller(b"2", dead=False), cleaner(b"2")) == [b"x1"]


def test_a_controller_that_ray_has_forgotten_is_dead() -> None:
    assert idle(cleaner(b"1"), cleaner(b"2", job_id=OVER)) == [b"x1", b"x2"]


@pytest.mark.parametrize(
    "differs",
    [
        {"job_id": OTHERS},
        {"class_name": "SomebodysActor"},
        {"class_name": "MyPlacementGroupCleaner"},
        {"is_detached": False},
        {"state": ActorTableData.DEAD},
    ],
)
def test_whatever_else_runs_on_the_cluster_is_left_alone(differs: dict[str, Any]) -> None:
    assert idle(cleaner(b"1", **differs)) == []
