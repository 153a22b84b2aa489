"""Every PDE, network and backend against float64 nested autograd on this machine; behind `pinnfuse verify`."""

from pinnfuse.verification.compare import Comparison, allowed, relative
from pinnfuse.verification.runner import Row, run
from pinnfuse.verification.table import show, summary

__all__ = ["Comparison", "Row", "allowed", "relative", "run", "show", "summary"]
