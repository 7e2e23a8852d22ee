"""A program of ``torch.export`` behind all nets; ``python docs/serve_exported.py [HOME]`` makes and publishes one.

Then: ``failsoft serve --app docs.serve_exported:config``. The file may hold tensors and ATen's operators only.
"""

from __future__ import annotations

import sys
from pathlib import Path

from failsoft.artifacts.bundle import Bundle
from failsoft.models.foreign.exported_models import ExportedModel
from failsoft.serving import AppSpec, ConstantRung, Instances, Regression, Rung, publish_own


def rungs(_bundle: Bundle) -> list[Rung]:
    """Who answers instead, in the gateway process."""
    return [ConstantRung(300.0, name="mean_price")]


flats = Instances(schema=tuple[float, float], examples=[[70.0, 3.0]])
config = AppSpec(predictor=ExportedModel(), quality=Regression(tolerance=20.0), rungs=rungs, inputs=flats)


def export(file: Path) -> None:
    """Stands for the export of a model of your own, with a batch of any size."""
    import torch  # noqa: PLC0415 -- gateways import this file, and must not load torch
    from torch import Tensor, nn  # noqa: PLC0415

    class Prices(nn.Module):
        """Square metres and rooms in, the price of a flat and its uncertainty out."""

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            """Of a batch."""
            mean = x @ x.new_tensor([3.5, 20.0])
            return {"mean": mean, "std": mean * 0 + 9.0}

    any_size = {"x": {0: torch.export.Dim("batch", max=4096)}}
    torch.export.save(torch.export.export(Prices(), (torch.zeros(2, 2),), dynamic_shapes=any_size), file)


def publish(home: Path) -> Bundle:
    """The file becomes a release: measured by what will judge it in service."""
    (home / "model").mkdir(parents=True, exist_ok=True)
    export(home / "model/model.pt2")
    healthy = [[30.0 + metres, 1.0 + metres // 25] for metres in range(100)]
    return publish_own(config, home / "model", healthy=healthy, home=home)


if __name__ == "__main__":
    print("published", publish(Path(sys.argv[1] if sys.argv[1:] else "work")).name)
