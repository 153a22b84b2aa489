"""What every test runs under: one thread, fixed seeds, no display, no account, and NaN in memory that nobody wrote."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic cuBLAS asks for
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("WANDB_MODE", "offline")

import random
from pathlib import Path

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    # without a card the kernels run in Triton's interpreter, which must be chosen before anything imports Triton
    os.environ["TRITON_INTERPRET"] = "1"

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA card: torch.cuda.is_available() is False")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def reproducible() -> None:
    """Seeds, and deterministic algorithms: the latter also fill `torch.empty` with NaN, so an unwritten cell shows."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared_reference() -> Path:
    """Published reference data that may lie beside a checkout; a test that compares with it is skipped elsewhere."""
    folder = ROOT.parent / "shared" / "reference"
    if not folder.is_dir():
        pytest.skip("no ../shared/reference beside this checkout")
    return folder


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Every device the machine has."""
    return torch.device(request.param)
