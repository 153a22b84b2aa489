"""Samplers of points as LightningDataModules; imported as `pinnfuse.datamodules`."""
