"""The Open Inference Protocol, version 2: what KServe, Triton and their clients speak, beside ``/v1/predict``."""
