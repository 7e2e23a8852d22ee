"""The gateway process answers when no model can, so it must start without what a model needs."""

from __future__ import annotations

import subprocess
import sys

LOADED = "import sys, failsoft.serving.gateway; print(*sys.modules)"


def test_the_gateway_process_loads_no_torch() -> None:
    """The import contract sees what the code says; this sees what really happens, lazy imports of others included."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    names = done.stdout.split()
    loaded = {name.partition(".")[0] for name in names}
    assert "failsoft" in loaded
    assert not loaded & {"torch", "matplotlib"}
    assert not [name for name in names if name.startswith("opentelemetry.exporter.otlp")], "nothing is traced"
