"""Every PDE, network, operator on grids and backend against float64 on this machine; behind `pinnfuse verify`."""

from pinnfuse.verification.compare import Comparison, allowed, relative
from pinnfuse.verification.operators import OperatorRow, run_operators
from pinnfuse.verification.physarum import run_physarum
from pinnfuse.verification.runner import Row, run
from pinnfuse.verification.table import show, summary

__all__ = [
    "Comparison",
    "OperatorRow",
    "Row",
    "allowed",
    "relative",
    "run",
    "run_operators",
    "run_physarum",
    "show",
    "summary",
]
