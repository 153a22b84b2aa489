"""Every PDE, network, operator on grids and backend against float64 on this machine; behind `pinnfuse verify`."""

from pinnfuse.verification.compare import Comparison, allowed, relative
from pinnfuse.verification.operators import OperatorRow, operator_tasks
from pinnfuse.verification.physarum import physarum_tasks
from pinnfuse.verification.pool import default_jobs, run_tasks
from pinnfuse.verification.runner import Row, network_tasks
from pinnfuse.verification.table import show, summary

__all__ = [
    "Comparison",
    "OperatorRow",
    "Row",
    "allowed",
    "default_jobs",
    "network_tasks",
    "operator_tasks",
    "physarum_tasks",
    "relative",
    "run_tasks",
    "show",
    "summary",
]
