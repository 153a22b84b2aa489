"""Triton operators, imported as `pinnfuse.kernels`; the only place of the library that imports Triton."""
