"""Weights of terms and points, points where they matter, and constants by step, for any training loop."""

from pinnfuse.balancing.curriculum import check_knots, value_at
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
    "check_knots",
    "rad",
    "rar_d",
    "value_at",
]
