"""Integer trigonometry and random numbers against the true ones."""

import math

import pytest
import torch

from pinnfuse.simulation.physarum.fixed import TURN, UNIT, along, below, cosine, philox, sine, wrap


def test_sine_of_every_angle() -> None:
    angle = torch.arange(-TURN, 2 * TURN, dtype=torch.int32)
    exact = torch.sin(angle.double() * (2 * math.pi / TURN)) * UNIT
    assert (sine(angle) - exact).abs().max() < 1.8  # 5.4e-5 of a unit; rounding alone is 0.5
    assert (cosine(angle) - torch.cos(angle.double() * (2 * math.pi / TURN)) * UNIT).abs().max() < 1.8
    assert torch.equal(sine(-angle), -sine(angle)) and torch.equal(cosine(-angle), cosine(angle))
    assert sine(torch.tensor([0, TURN // 4, TURN // 2, 3 * TURN // 4])).tolist() == [0, UNIT, 0, -UNIT]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # known answers of the authors' Random123
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers(counter, key, words) -> None:
    def signed(low: int, high: int) -> torch.Tensor:
        value = high << 32 | low
        return torch.tensor(value - (1 << 64) if value >= 1 << 63 else value)

    found = philox(signed(*key), torch.tensor([counter[0]]), signed(counter[1], counter[2]), counter[3])
    assert tuple(int(w) for w in found) == words


def test_draws_are_even() -> None:
    words = philox(torch.tensor(3), torch.arange(100_000), torch.tensor(5), 0)
    for word in words:
        counts = below(word, 7).bincount(minlength=7).double()
        chi2 = ((counts - 1e5 / 7) ** 2 / (1e5 / 7)).sum()
        assert chi2 < 22.5  # 6 degrees of freedom: one in a thousand is above


def test_wrapping_has_no_sign_of_c() -> None:
    assert wrap(torch.tensor([-1, -10, 0, 9, 10, 19]), 10).tolist() == [9, 0, 0, 9, 0, 9]


def test_a_displacement_is_rounded_evenly() -> None:
    assert along(torch.tensor([65536, 3]), torch.tensor([UNIT, UNIT // 2])).tolist() == [65536, 2]
    assert along(torch.tensor([65536]), torch.tensor([-UNIT])).tolist() == [-65536]
