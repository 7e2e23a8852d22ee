"""An ONNX file behind all nets; ``python docs/serve_onnx.py [HOME]`` makes and publishes a tiny one.

Then: ``failsoft serve --app docs.serve_onnx:config``. Needs ``pip install 'failsoft[onnx]'``. A torch model of your own
becomes such a file by ``torch.onnx.export(model, examples, "model.onnx", dynamo=True, external_data=False,
dynamic_shapes=({0: torch.export.Dim("batch", max=4096)},))``: mind the batch, which must be of any size.
"""

from __future__ import annotations

import sys
from pathlib import Path

from failsoft.artifacts.bundle import Bundle
from failsoft.models.foreign.onnx_models import OnnxModel
from failsoft.serving import AppSpec, Classification, ConstantRung, Instances, Rung, publish_own

LABELS = ("small", "large")
MODEL = """<ir_version: 9, opset_import: ["" : 17]> flats (float[N,2] x) => (float[N,2] logits)
<float[2,2] weight = {-0.1, 0.1, 0.0, 0.0}, float[2] bias = {8.0, -8.0}> { logits = Gemm(x, weight, bias) }"""


def rungs(_bundle: Bundle) -> list[Rung]:
    """Who answers instead, in the gateway process."""
    return [ConstantRung("small", name="most")]


flats = Instances(schema=tuple[float, float], examples=[[70.0, 3.0]])
config = AppSpec(predictor=OnnxModel(), quality=Classification(labels=LABELS), rungs=rungs, inputs=flats)


def publish(home: Path) -> Bundle:
    """The file becomes a release: measured by what will judge it in service."""
    import onnx  # noqa: PLC0415 -- makes files; ONNX Runtime, which reads them, does without

    (home / "model").mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.parser.parse_model(MODEL), home / "model/model.onnx")
    healthy = [[metres, metres // 25] for metres in (20.0, 30.0, 40.0, 120.0, 140.0, 160.0)]
    return publish_own(config, home / "model", healthy=healthy, home=home)


if __name__ == "__main__":
    print("published", publish(Path(sys.argv[1] if sys.argv[1:] else "work")).name)
