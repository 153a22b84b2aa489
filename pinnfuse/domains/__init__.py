"""Where points live: boxes, their faces and slices, unions, holes, given point sets; and how points are drawn."""

from pinnfuse.domains.box import Box, Face, Slice
from pinnfuse.domains.disc import Circle, Disc, Perforated
from pinnfuse.domains.pointset import PointSet
from pinnfuse.domains.region import Region, Union
from pinnfuse.domains.sampling import METHODS, unit_cube

__all__ = [
    "METHODS",
    "Box",
    "Circle",
    "Disc",
    "Face",
    "Perforated",
    "PointSet",
    "Region",
    "Slice",
    "Union",
    "unit_cube",
]
