"""The real HTTP client of Triton, unchanged, against a real server in this process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from failsoft.serving.config import GatewayConfig
from failsoft.serving.plan.plan import Stage
from failsoft.serving.web.protocol.inference import Standing
from failsoft.serving.web.protocol.opening import open_protocol
from tests.serving.fakes import plan, weak
from tests.serving.own_world import OwnWorld, example
from tests.serving.web.protocol.served import MODEL, Served, listening

client_of = pytest.importorskip("tritonclient.http", reason="needs tritonclient[http]")


def words(*said: object, binary: bool) -> object:
    text = client_of.InferInput("text", [len(said)], "BYTES")
    text.set_data_from_numpy(np.array(said, dtype=np.object_), binary_data=binary)
    return text


@pytest.mark.parametrize("binary", [True, False])
def test_it_asks_and_reads_answers_as_bytes_and_as_json(binary: bool) -> None:
    served = Served()
    with listening(served.app) as address:
        client = client_of.InferenceServerClient(address)
        wanted = [client_of.InferRequestedOutput(name, binary_data=binary) for name in ("intent", "confidence")]
        text = words("play some jazz", "wake me at seven", binary=binary)
        answer = client.infer(MODEL, [text], request_id="q-1", outputs=wanted, timeout=90_000, sequence_id=17)
        assert answer.as_numpy("intent").tolist() in ([b"play_music"] * 2, ["play_music"] * 2)
        assert answer.as_numpy("confidence").dtype == np.float32
        assert (answer.get_response()["id"], answer.get_response()["model_version"]) == ("q-1", "r1")
        served.counter.blue.answer = weak()
        everything = client.infer(MODEL, [text], parameters={"caller": "tenant-4"})
        assert np.isnan(everything.as_numpy("confidence")).all()
        assert everything.as_numpy("degrade_reason").tolist() == [b"confidence 0.30 is below 0.50"] * 2
        assert everything.as_numpy("entities").tolist() == [b"[]"] * 2
        client.close()
    first, second = served.asked
    assert (first.request_id, first.timeout_ms, first.key, second.caller) == ("q-1", 90.0, "17", "tenant-4")


def test_its_health_metadata_and_errors_work() -> None:
    served = Served()
    with listening(served.app) as address:
        client = client_of.InferenceServerClient(address)
        assert (client.is_server_live(), client.is_server_ready(), client.is_model_ready(MODEL)) == (True, True, True)
        assert client.get_server_metadata()["name"] == "failsoft"
        assert client.get_model_metadata(MODEL, "r1")["inputs"][0]["name"] == "text"
        served.follow(plan(Stage.DEGRADED, share=0.0))
        assert (client.is_server_ready(), client.is_model_ready(MODEL)) == (True, False)
        assert client.infer(MODEL, [words("play", binary=True)]).as_numpy("source").tolist() != [b"primary"]
        with pytest.raises(Exception, match="no model 'other' is served here"):
            client.infer("other", [words("play", binary=True)])
        with pytest.raises(Exception, match="65 items"):
            client.infer(MODEL, [words(*["a"] * 65, binary=True)])
        with pytest.raises(Exception, match="compressed bodies"):
            client.infer(MODEL, [words("play", binary=True)], request_compression_algorithm="gzip")
        client.close()


def test_an_own_models_numbers_go_as_bytes(tmp_path: Path) -> None:
    there = example()
    there["publish"](tmp_path)
    world = OwnWorld(there["config"], tmp_path)
    standing = Standing(plan=world.plan, starting=frozenset(), is_whole=True)
    open_protocol(world.app, GatewayConfig(model_name="flats"), there["config"].task(), lambda: standing)
    with listening(world.app) as address:
        client = client_of.InferenceServerClient(address)
        rows = client_of.InferInput("instance", [3, 2], "FP64")
        rows.set_data_from_numpy(np.array([[70.0, 3.0], [45.0, 2.0], [np.nan, 1.0]]))
        answer = client.infer("flats", [rows])
        assert answer.as_numpy("output")[:2].tolist() == [305.0, 197.5]
        assert answer.as_numpy("source").tolist()[:2] == [b"primary"] * 2
        assert answer.as_numpy("source").tolist()[2] != b"primary", "no model is asked what is no number"
        client.close()
