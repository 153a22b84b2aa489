"""Figures of a run, as PNG and GIF files."""

from pinnfuse.figures.fields import Plane
from pinnfuse.figures.report import Report

__all__ = ["Plane", "Report"]
