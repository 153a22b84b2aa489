"""Kernels run on the card, or on the CPU in Triton's interpreter (which `tests/conftest.py` chooses)."""

from collections.abc import Iterator

import pytest
import torch

from pinnfuse.kernels import jets


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let CPU tensors through, keep generated sources out of the user's cache, and what a test changes in its own."""
    monkeypatch.setenv("PINNFUSE_INTERPRET", "1")
    monkeypatch.setenv("PINNFUSE_CACHE", str(tmp_path_factory.getbasetemp() / "sources"))
    jets._known.clear()
    yield
    jets._known.clear()


@pytest.fixture
def where() -> torch.device:
    """The card if there is one, else the interpreter's CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
