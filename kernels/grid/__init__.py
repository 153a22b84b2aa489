"""Triton kernels of the operators on grids."""

from pinnfuse.kernels.grid.layout import Layout, Line, Term

__all__ = ["Layout", "Line", "Term"]
