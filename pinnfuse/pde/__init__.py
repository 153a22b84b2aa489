"""Symbolic PDEs: text or sympy in, jets and torch functions out. Imports sympy and torch only."""

from pinnfuse.pde.calculus import differentiate
from pinnfuse.pde.definition import PDE
from pinnfuse.pde.jet import Jet, parse_jet
from pinnfuse.pde.lowering import torch_function
from pinnfuse.pde.parser import parse_expression
from pinnfuse.pde.symbols import D, Data, Parameter, biharmonic, coordinates, field, laplacian

__all__ = [
    "PDE",
    "D",
    "Data",
    "Jet",
    "Parameter",
    "biharmonic",
    "coordinates",
    "differentiate",
    "field",
    "laplacian",
    "parse_expression",
    "parse_jet",
    "torch_function",
]
