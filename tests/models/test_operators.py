import pytest
import torch

from pinnfuse import models, tasks
from pinnfuse.models import FNO, UNet, for_task

NETS = {
    "fno": lambda d, p, **k: FNO(2, 3, d, p, modes=3, width=8, depth=2),
    "unet": lambda d, p, **k: UNet(2, 3, d, p, 8, 3),
}


@pytest.mark.parametrize("name", list(NETS))
@pytest.mark.parametrize("shape", [(16,), (13,), (8, 12), (9, 7), (85, 5), (6, 5, 8)], ids=str)
@pytest.mark.parametrize("periodic", [True, False])
def test_any_size_of_grid(name, shape, periodic):
    net = NETS[name](len(shape), (periodic,) * len(shape))
    x = torch.randn(2, 2, *shape, requires_grad=True)
    y = net(x)
    assert y.shape == (2, 3, *shape)
    y.square().sum().backward()
    assert bool(x.grad.isfinite().all()) and all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize(("name", "shift"), [("fno", 1), ("unet", 4)])
@pytest.mark.parametrize("dimension", [1, 2])
def test_a_periodic_network_commutes_with_shifts(name, shift, dimension):
    """By one point, or by the coarsest level's spacing: nothing tells where the end of the period is."""
    net = NETS[name](dimension, (True,) * dimension).double()
    x = torch.randn(1, 2, *(16,) * dimension, dtype=torch.float64)
    moved = net(torch.roll(x, shift, -1))
    assert torch.allclose(moved, torch.roll(net(x), shift, -1), atol=1e-12)


@pytest.mark.parametrize("name", list(NETS))
def test_walls_are_told_from_periods(name):
    net = NETS[name](1, (False,)).double()
    x = torch.randn(1, 2, 16, dtype=torch.float64)
    assert not torch.allclose(net(torch.roll(x, 8, -1)), torch.roll(net(x), 8, -1), atol=1e-6)


def test_fno_means_the_same_on_a_finer_grid():
    """A smooth input, sampled twice as fine, gives the same function."""
    net = FNO(1, 1, 1, (True,), modes=4, width=8, depth=2).double()

    def sampled(n):
        x = 2 * torch.pi * torch.arange(n, dtype=torch.float64) / n
        return net((torch.sin(x) + 0.3 * torch.cos(2 * x))[None, None])[0, 0]

    with torch.no_grad():
        coarse, fine = sampled(64), sampled(128)[::2]
    assert float((coarse - fine).norm() / fine.norm()) < 1e-3


def test_spectral_convolution_is_a_convolution():
    """Against the sum over modes, in a grid too small for all of them, too."""
    from pinnfuse.models.fno import SpectralConvolution

    for n in (16, 5):
        layer = SpectralConvolution(3, 1, 4).double()
        v = torch.randn(2, 3, n, dtype=torch.float64)
        weight = torch.view_as_complex(layer.weight)[0]
        spectrum = torch.fft.fft(v) / n
        x = torch.arange(n, dtype=torch.float64)
        expected = torch.zeros(2, 3, n, dtype=torch.float64)
        for k in range(min(4, n // 2 + 1)):
            mode = torch.einsum("bi,io->bo", spectrum[..., k], weight[..., k])
            wave = torch.exp(2j * torch.pi * k * x / n)
            part = (mode[..., None] * wave).real
            expected += part if k == 0 else 2 * part
        assert torch.allclose(layer(v), expected, atol=1e-12)


@pytest.mark.parametrize("shape", [(16,), (10, 8), (7, 9), (6, 5, 8)], ids=str)
def test_every_transform_back_is_of_a_spectrum_of_real_functions(shape, monkeypatch):
    """Libraries do not agree on the others: cuFFT takes what others ignore, in float32 and float64 differently."""
    from pinnfuse.models.fno import SpectralConvolution

    back, seen = torch.fft.irfft, []

    def checked(spectrum, n, dim=-1, norm=None):
        assert not spectrum[..., 0].imag.any() and dim == -1
        if n % 2 == 0 and spectrum.shape[-1] == n // 2 + 1:
            assert not spectrum[..., -1].imag.any()
        seen.append(n)
        return back(spectrum, n=n, norm=norm)

    layer, v = SpectralConvolution(3, len(shape), 5).double(), torch.randn(2, 3, *shape, dtype=torch.float64)
    expected = layer(v)
    monkeypatch.setattr(torch.fft, "irfft", checked)
    monkeypatch.setattr(torch.fft, "irfftn", None)
    assert torch.equal(layer(v), expected) and seen == [shape[-1]]
    assert torch.autograd.gradcheck(layer, v[:1, :, :6].clone().requires_grad_())


def test_networks_of_tasks_have_their_channels():
    for name in tasks.available():
        task = tasks.get(name)
        for model in models.OPERATORS:
            net = for_task(task, model)
            inside = task.channels[0] + len(task.positions(torch.zeros(1)))
            assert net(torch.zeros(1, inside, *task.shape)).shape == (1, task.channels[1], *task.shape)


def test_mistakes_are_named():
    task = tasks.get("burgers")
    with pytest.raises(ValueError, match="unknown surrogate model 'unett'. Did you mean 'unet'"):
        for_task(task, "unett")
    with pytest.raises(ValueError, match="no option 'widht'. Did you mean 'width'"):
        for_task(task, "fno", widht=3)
    with pytest.raises(ValueError, match="depth 4 every axis needs at least 8 points; got .5."):
        UNet(1, 1, 1, (True,), depth=4)(torch.zeros(1, 1, 5))
    with pytest.raises(ValueError, match="`modes`, `width`, `depth` must be at least 1"):
        FNO(1, 1, 1, (True,), modes=0)
