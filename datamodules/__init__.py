"""Samplers of points as LightningDataModules; imported as `pinnfuse.datamodules`."""

from pinnfuse.datamodules.collocation import CollocationDataModule, Points

__all__ = ["CollocationDataModule", "Points"]
