"""Samples that surrogates learn from: computed in shards and cached, or from a user's own files."""

from pinnfuse.datasets.files import load, split
from pinnfuse.datasets.samples import Samples
from pinnfuse.datasets.shards import folder_of, generated

__all__ = ["Samples", "folder_of", "generated", "load", "split"]
