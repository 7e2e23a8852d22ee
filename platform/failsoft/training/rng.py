"""The global random generators of a process as small JSON, so that a resumed run draws what it would have drawn."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

RngState = dict[str, Any]


def capture_rng() -> RngState:
    """State of torch (CPU and each CUDA device), numpy's legacy global generator and ``random``."""
    version, words, gauss = random.getstate()
    kind, keys, place, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002 -- foreign code may draw from it
    cuda = [_encode(state) for state in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else []
    return {
        "torch": _encode(torch.get_rng_state()),
        "cuda": cuda,
        "numpy": [str(kind), np.asarray(keys).tolist(), int(place), int(has_gauss), float(cached)],
        "python": [version, list(words), gauss],
    }


def restore_rng(state: RngState) -> None:
    """Set all generators as :func:`capture_rng` saw them. CUDA devices are set as far as both sides have them."""
    torch.set_rng_state(_decode(state["torch"]))
    for device, text in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(_decode(text), device)
    kind, keys, place, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), place, has_gauss, cached))  # noqa: NPY002 -- as above
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))


@dataclass(frozen=True, kw_only=True)
class HeldRng:
    """The same generators as :func:`capture_rng` knows, for this process only: several times quicker to take."""

    cpu: torch.Tensor
    cuda: list[torch.Tensor]
    numpy: dict[str, Any] | tuple[Any, ...]
    python: tuple[Any, ...]

    @classmethod
    def take(cls) -> HeldRng:
        """As they are now; nothing of it changes with them."""
        return cls(
            cpu=torch.get_rng_state(),
            cuda=torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            numpy=np.random.get_state(legacy=True),  # noqa: NPY002 -- as above
            python=random.getstate(),
        )

    def restore(self) -> None:
        """Set all generators as they were."""
        torch.set_rng_state(self.cpu)
        for device, state in enumerate(self.cuda):
            torch.cuda.set_rng_state(state, device)
        np.random.set_state(self.numpy)  # noqa: NPY002 -- as above
        random.setstate(self.python)


def seed_all(seed: int, *, rank: int, position: int) -> None:
    """Seed all generators from (seed, rank, position): a fresh start, or a rank that the checkpoint does not know."""
    words = np.random.SeedSequence([seed, rank, position]).generate_state(3, np.uint32).tolist()
    torch.manual_seed(words[0])
    np.random.seed(words[1])  # noqa: NPY002 -- as above
    random.seed(words[2])


def _encode(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode("ascii")


def _decode(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
