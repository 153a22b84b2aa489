"""Weights of terms and points, and points where they matter, for any training loop."""

from pinnfuse.balancing.points import CausalWeights, PerPointWeights, PointWeights, ResidualAttention, SelfAdaptive
from pinnfuse.balancing.refinement import rad, rar_d
from pinnfuse.balancing.terms import NTK, GradientNorm, ReLoBRaLo

__all__ = [
    "NTK",
    "CausalWeights",
    "GradientNorm",
    "PerPointWeights",
    "PointWeights",
    "ReLoBRaLo",
    "ResidualAttention",
    "SelfAdaptive",
    "rad",
    "rar_d",
]
