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
    return HeldRng.take().as_json()


def restore_rng(state: RngState) -> None:
    """Set all generators as :func:`capture_rng` saw them. CUDA devices are set as far as both sides have them."""
    HeldRng.from_json(state).restore()


@dataclass(frozen=True, kw_only=True)
class HeldRng:
    """The same generators as :func:`capture_rng` knows: several times quicker to take, as JSON when there is time."""

    cpu: torch.Tensor
    cuda: list[torch.Tensor]
    numpy: tuple[Any, ...]
    python: tuple[Any, ...]

    @classmethod
    def take(cls) -> HeldRng:
        """As they are now; nothing of it changes with them."""
        return cls(
            cpu=torch.get_rng_state(),
            cuda=torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            numpy=tuple(np.random.get_state(legacy=True)),  # noqa: NPY002 -- foreign code may draw from it
            python=random.getstate(),
        )

    def restore(self) -> None:
        """Set all generators as they were."""
        torch.set_rng_state(self.cpu)
        for device, state in enumerate(self.cuda[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, device)
        np.random.set_state(self.numpy)  # noqa: NPY002 -- as above
        random.setstate(self.python)

    def as_json(self) -> RngState:
        """Small JSON; reads nothing but what was taken."""
        kind, keys, place, has_gauss, cached = self.numpy
        version, words, gauss = self.python
        return {
            "torch": _encode(self.cpu),
            "cuda": [_encode(state) for state in self.cuda],
            "numpy": [str(kind), np.asarray(keys).tolist(), int(place), int(has_gauss), float(cached)],
            "python": [version, list(words), gauss],
        }

    @classmethod
    def from_json(cls, state: RngState) -> HeldRng:
        """What :meth:`as_json` gave."""
        kind, keys, place, has_gauss, cached = state["numpy"]
        version, words, gauss = state["python"]
        return cls(
            cpu=_decode(state["torch"]),
            cuda=[_decode(text) for text in state["cuda"]],
            numpy=(kind, np.array(keys, dtype=np.uint32), place, has_gauss, cached),
            python=(version, tuple(words), gauss),
        )


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
