"""What several tests of jets run under."""

import warnings

import pytest
import torch


@pytest.fixture
def double_precision():
    """New tensors and networks are float64; what runs slowly, and says so, is not news here."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_default_dtype(torch.float32)
