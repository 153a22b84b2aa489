import math

import pytest
import torch

from pinnfuse.tasks.random_fields import generator_of, neumann_field, periodic_field


@pytest.mark.parametrize(("shape", "length"), [((32,), 1.0), ((16, 16), 2.0)], ids=str)
def test_a_periodic_fields_variance_is_the_sum_of_its_modes(shape, length):
    fields = torch.stack([periodic_field(generator_of(0, i), shape, 3.0, 2.0, 1.5, length) for i in range(400)])
    k = 2 * math.pi / length * torch.fft.fftfreq(shape[0], 1 / shape[0], dtype=torch.float64)
    squares = k**2 if len(shape) == 1 else k[:, None] ** 2 + k**2
    modes = 3.0 * (squares + 4.0) ** -1.5
    modes.flatten()[0] = 0.0
    expected = float(modes.sum()) / length ** len(shape)
    assert float(fields.square().mean()) == pytest.approx(expected, rel=0.1)  # 400 fields of a few independent modes
    assert float(fields.flatten(1).mean(1).abs().max()) < 1e-12


def test_a_neumann_field_is_flat_at_the_walls():
    x = (torch.arange(256, dtype=torch.float64) + 0.5) / 256
    field = neumann_field(generator_of(0, 0), (x, x), 1.0, 3.0, 6.0)  # smooth
    inside = float((field[1:] - field[:-1]).abs().max())
    assert float((field[1] - field[0]).abs().max()) < 0.05 * inside
    assert float((field[:, -1] - field[:, -2]).abs().max()) < 0.05 * inside


def test_a_sample_depends_on_seed_and_index_alone():
    draw = lambda seed, index: float(torch.rand((), generator=generator_of(seed, index)))  # noqa: E731
    assert draw(0, 5) == draw(0, 5)
    assert len({draw(0, 5), draw(0, 6), draw(1, 5)}) == 3
