"""Torch's older switches of precision raise once the newer ones were used: ours must not."""

import pytest
import torch

from pinnfuse.precision import matmul_precision, resolve, torch_convolutions, torch_matmul

cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
newer = pytest.mark.skipif(not hasattr(products, "fp32_precision"), reason="this torch has the older switches alone")


@pytest.fixture
def switches():
    yield
    for place in (products, cudnn.conv, cudnn.rnn, torch.backends.mkldnn.matmul):
        place.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    cudnn.allow_tf32 = True


@newer
@pytest.mark.parametrize(("set_to", "precision"), [("tf32", "tf32"), ("ieee", "float32")])
def test_products_follow_the_newer_switch(switches, set_to, precision):
    products.fp32_precision = set_to
    assert resolve(None, torch.float32) == precision
    with torch_matmul("float32"):
        assert products.fp32_precision != "tf32"
    assert matmul_precision() == {"tf32": "high", "ieee": "highest"}[set_to]
    with torch_convolutions():
        assert (cudnn.conv.fp32_precision == "tf32") == (set_to == "tf32")
    assert cudnn.conv.fp32_precision == "tf32"


@newer
def test_convolutions_whose_precision_was_chosen_stay_as_they_are(switches):
    cudnn.conv.fp32_precision = "ieee"
    with torch_convolutions():
        assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == ("ieee", "tf32")
    assert cudnn.conv.fp32_precision == "ieee"


def test_convolutions_take_tf32_where_products_may():
    before = cudnn.allow_tf32
    with torch_convolutions():
        assert not cudnn.allow_tf32
    with torch_matmul("tf32"), torch_convolutions():
        assert cudnn.allow_tf32 == before
    assert cudnn.allow_tf32 == before
