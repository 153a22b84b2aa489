"""Triton source of discrete residuals, as text; nothing here runs it."""

from pinnfuse.grid.codegen.kernels import generate

__all__ = ["generate"]
