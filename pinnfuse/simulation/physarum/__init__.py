"""Physarum: agents and a field, in four stages."""

from pinnfuse.simulation.physarum.backends import STAGES
from pinnfuse.simulation.physarum.images import read_image, to_levels
from pinnfuse.simulation.physarum.parameters import Parameters
from pinnfuse.simulation.physarum.simulation import Physarum

__all__ = ["STAGES", "Parameters", "Physarum", "read_image", "to_levels"]
