"""Kernels run on the card, or on the CPU in Triton's interpreter (which `tests/conftest.py` chooses)."""

import pytest
import torch


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let CPU tensors through, and keep generated sources out of the user's cache."""
    monkeypatch.setenv("PINNFUSE_INTERPRET", "1")
    monkeypatch.setenv("PINNFUSE_CACHE", str(tmp_path_factory.getbasetemp() / "sources"))


@pytest.fixture
def where() -> torch.device:
    """The card if there is one, else the interpreter's CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
