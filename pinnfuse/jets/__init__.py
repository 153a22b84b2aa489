"""Derivatives of coordinate networks as jets: channel spaces, plans, recognition, and engines that evaluate them."""

from pinnfuse.jets.engine import ClosedFormEngine, JetEngine, LossResult, LossTask
from pinnfuse.jets.forward_mode import ForwardModeEngine
from pinnfuse.jets.plan import JetPlan, Output, derivative_plan, plan
from pinnfuse.jets.program import Program
from pinnfuse.jets.space import ChannelSpace, Operator, Term
from pinnfuse.jets.trace import NotRecognised, Recognised, recognise
from pinnfuse.jets.translate import HAVE_CLOSED_FORM

__all__ = [
    "HAVE_CLOSED_FORM",
    "ChannelSpace",
    "ClosedFormEngine",
    "ForwardModeEngine",
    "JetEngine",
    "JetPlan",
    "LossResult",
    "LossTask",
    "NotRecognised",
    "Operator",
    "Output",
    "Program",
    "Recognised",
    "Term",
    "derivative_plan",
    "plan",
    "recognise",
]
