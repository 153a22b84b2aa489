"""The conditions that every test runs under."""

import torch


def test_unwritten_memory_shows_as_nan(device: torch.device) -> None:
    assert torch.empty(64, device=device).isnan().all()


def test_seeds_are_fixed() -> None:
    drawn = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(3))
