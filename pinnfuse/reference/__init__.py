"""Reference solutions in float64: closed forms, and solvers whose results are cached on first use."""

from pinnfuse.reference.allen_cahn import allen_cahn
from pinnfuse.reference.base import ClosedForm, FunctionReference, Reference, Scattered, Unknown, tensor_points
from pinnfuse.reference.burgers import cole_hopf
from pinnfuse.reference.cache import cached, directory
from pinnfuse.reference.cavity import CavityReference
from pinnfuse.reference.kdv import kdv
from pinnfuse.reference.periodic import PeriodicReference
from pinnfuse.reference.poisson import poisson
from pinnfuse.reference.schrodinger import schrodinger

__all__ = [
    "CavityReference",
    "ClosedForm",
    "FunctionReference",
    "PeriodicReference",
    "Reference",
    "Scattered",
    "Unknown",
    "allen_cahn",
    "cached",
    "cole_hopf",
    "directory",
    "kdv",
    "poisson",
    "schrodinger",
    "tensor_points",
]
