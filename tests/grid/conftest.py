"""Kernels of operators run on the card, or on the CPU in Triton's interpreter (which `tests/conftest.py` chooses)."""

import pytest
import torch


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let CPU tensors through, keep sources out of the user's cache, and take tiles so small that small fields
    have some away from all ends."""
    from pinnfuse.grid import linear
    from pinnfuse.kernels.grid import apply, run_flow
    from pinnfuse.kernels.grid.tile import Tile

    if not torch.cuda.is_available():
        for table in (apply.TILES, run_flow.FORWARD, run_flow.BACKWARD):
            for d, tile in {1: Tile(16, 1, 1), 2: Tile(16, 4, 1), 3: Tile(16, 4, 1)}.items():
                monkeypatch.setitem(table, d, tile)
        monkeypatch.setattr(run_flow, "BOUNDED", {})
        for remembered in (apply.kernel, run_flow.kernels):
            remembered.cache_clear()  # with other tiles
        linear._plans.clear()
    monkeypatch.setenv("PINNFUSE_INTERPRET", "1")
    monkeypatch.setenv("PINNFUSE_CACHE", str(tmp_path_factory.getbasetemp() / "sources"))


@pytest.fixture
def where() -> torch.device:
    """The card if there is one, else the interpreter's CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
