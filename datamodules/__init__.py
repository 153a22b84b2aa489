"""Samplers of points, and samples of fields, as LightningDataModules; imported as `pinnfuse.datamodules`."""

from pinnfuse.datamodules.collocation import CollocationDataModule, Points
from pinnfuse.datamodules.grids import GridBatch, GridDataModule

__all__ = ["CollocationDataModule", "GridBatch", "GridDataModule", "Points"]
