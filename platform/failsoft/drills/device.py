"""Where a drill ran, in words, and what that leaves unsaid."""

from __future__ import annotations

import torch


def device_in_words() -> str:
    """Names the GPUs that torch sees here; says what never ran on one where it sees none."""
    if not torch.cuda.is_available():
        return "no GPU here: nothing of this ran on one, so out of memory, NaN and hangs were met on the CPU only"
    names = sorted({torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())})
    return f"GPUs here: {', '.join(names)}; a script that does not use them was drilled on the CPU"
