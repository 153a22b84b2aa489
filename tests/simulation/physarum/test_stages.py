"""Each stage alone, in torch: by hand, and against other ways of computing it."""

import math

import pytest
import torch
from scipy.signal import convolve2d

from pinnfuse.simulation import Physarum
from pinnfuse.simulation.physarum import stages

QUARTER = math.pi / 2


def colony(positions, headings=None, shape=(8, 10), **options) -> Physarum:
    positions = torch.tensor(positions, dtype=torch.float64)
    headings = None if headings is None else torch.tensor(headings, dtype=torch.float64)
    options = {"sensor_distance": 2.0, "sensor_angle": 90.0, "turn_angle": 90.0, "backend": "torch"} | options
    return Physarum(shape, len(positions), positions=positions, headings=headings, **options)


def test_three_agents_by_hand() -> None:
    """Sensors two cells left, ahead and right; the field holds row x 100 + column."""
    field = torch.arange(8)[:, None] * 100.0 + torch.arange(10)
    sim = colony([[4.5, 3.5], [0.5, 0.5], [9.5, 7.5]], [0.0, QUARTER, 2 * QUARTER], field=field)
    sensed = stages.sense(sim.colony)
    expected = [
        [104, 306, 504],  # east: left is two rows up
        [2, 200, 8],  # south: left is east, right is west around the edge
        [109, 707, 509],  # west: left is south around the edge
    ]
    assert sensed.T.tolist() == expected
    stages.steer_and_move(sim.colony, sensed)
    # the first turns right (504 highest, 104 lowest): south; the second is highest ahead: stays; the third has the
    # highest ahead: stays
    assert torch.allclose(sim.headings, torch.tensor([1, 1, 2]).double() * QUARTER)
    assert sim.positions.tolist() == [[4.5, 4.5], [0.5, 1.5], [8.5, 7.5]]
    stages.deposit(sim.colony)
    counts = torch.zeros(8, 10, dtype=torch.int32)
    counts[4, 4] = counts[1, 0] = counts[7, 8] = 1
    assert torch.equal(sim.colony.trails[0][0], counts)


@pytest.mark.parametrize("sensing", ["nearest", "bilinear"])
def test_an_agent_senses_the_same_whoever_else_is_there(sensing) -> None:
    options = {"field": torch.rand(8, 10), "sensing": sensing}
    places, ways = [[1.2, 7.9], [9.9, 0.1], [5.0, 3.3]], [0.3, 4.0, 2.0]
    together = stages.sense(colony(places, ways, **options).colony)
    for i in range(3):
        alone = stages.sense(colony(places[i : i + 1], ways[i : i + 1], **options).colony)
        assert torch.equal(alone[:, 0], together[:, i])


def test_bilinear_sensing_is_exact_for_a_bilinear_field() -> None:
    rows, columns = torch.arange(8)[:, None] + 0.5, torch.arange(10) + 0.5
    field = (2 + 3 * rows + columns + rows * columns / 4).double()
    sim = colony([[4.7, 3.1]], [0.7], field=field, sensing="bilinear", sensor_angle=30.0, dtype=torch.float64)
    for value, angle in zip(stages.sense(sim.colony)[:, 0], (0.7 - math.pi / 6, 0.7, 0.7 + math.pi / 6), strict=True):
        x, y = 4.7 + 2 * math.cos(angle), 3.1 + 2 * math.sin(angle)
        assert float(value) == pytest.approx(2 + 3 * y + x + x * y / 4, abs=3e-3)  # angles are whole units: 1e-4


def test_a_row_of_the_matrix_is_what_a_species_follows() -> None:
    """Fields of 1 and 10 everywhere: 1 x 1 + 2 x 10 for the first species, 3 x 1 + 4 x 10 for the second."""
    field = torch.ones(2, 8, 10) * torch.tensor([1.0, 10.0])[:, None, None]
    sim = colony([[1.5, 1.5], [5.5, 5.5]], species=2, attraction=[[1, 2], [3, 4]], field=field)
    assert stages.sense(sim.colony).tolist() == [[21, 43]] * 3


def test_sensors_beyond_a_wall_read_the_last_cell() -> None:
    field = torch.arange(80.0).reshape(8, 10)
    sim = colony([[9.5, 7.5]], [0.0], field=field, boundary="walls")
    assert stages.sense(sim.colony)[:, 0].tolist() == [59, 79, 79]


def steered(sensed, **options) -> list[int]:
    """Turns (-1, 0, 1) of as many agents as there are columns."""
    sensed = torch.tensor(sensed).T.contiguous()
    sim = colony([[5.0, 4.0]] * sensed.shape[1], **options)
    stages.steer_and_move(sim.colony, sensed)
    return [(h + 1) % 4 - 1 for h in (sim.headings / QUARTER).round().int().tolist()]


def test_rules_of_steering() -> None:
    cases = [[1.0, 3.0, 2.0], [3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [2.0, 2.0, 1.0], [1.0, 2.0, 2.0]]
    assert steered(cases) == [0, -1, 1, 0, -1, 1]
    assert steered(cases, steering="argmax") == [0, -1, 1, 0, 0, 0]
    sides = steered([[2.0, 1.0, 3.0]] * 2000)
    assert set(sides) == {-1, 1} and abs(sum(sides)) < 150  # 3.3 standard deviations
    ties = steered([[2.0, 2.0, 2.0]] * 3000, steering="argmax", ties="random")
    assert all(abs(ties.count(k) - 1000) < 90 for k in (-1, 0, 1))
    assert set(steered([[2.0, 1.0, 2.0]] * 50, steering="argmax")) == {-1, 1}


@pytest.mark.parametrize("deposits", ["count", "two-stage", "float"])
def test_every_deposit_of_a_crowd_arrives(deposits) -> None:
    sim = colony([[3.2, 4.7]] * 1000, deposits=deposits, deposit=0.25)
    stages.deposit(sim.colony)
    trail = sim.colony.trails[0][0].double() * (0.25 if deposits != "float" else 1)
    assert trail[4, 3] == trail.sum() == 250.0


@pytest.mark.parametrize("boundary", ["torus", "walls"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (2, 3), (8, 10)])
def test_diffusion_is_a_convolution_and_keeps_the_sum(boundary, shape) -> None:
    field = torch.rand(shape, dtype=torch.float64)
    options = {"boundary": boundary, "dtype": torch.float64, "sensor_distance": 1.0, "deposit": 0.0}
    sim = Physarum(shape, 1, field=field, decay=0.2, diffusion=0.7, backend="torch", **options)
    stages.diffuse_and_decay(sim.colony)
    after = sim.colony.fields[1][0]
    box = convolve2d(field, [[1 / 9] * 3] * 3, mode="same", boundary="wrap" if boundary == "torus" else "symm")
    assert torch.allclose(after, 0.8 * (0.3 * field + 0.7 * torch.from_numpy(box)), atol=1e-14, rtol=0)
    assert float(after.sum()) == pytest.approx(0.8 * float(field.sum()), rel=1e-13)


def test_a_mode_decays_by_its_symbol() -> None:
    """cos(2 pi (k x + l y) / n) is multiplied by keep (1 - diffusion (1 - s)), s = (1 + 2 cos k)(1 + 2 cos l) / 9."""
    n, k, angle = 16, 3, 2 * math.pi / 16
    x = torch.arange(n, dtype=torch.float64)
    mode = torch.cos(angle * (k * x[None, :] + x[:, None]))
    sim = Physarum((n, n), 1, field=mode, decay=0.1, diffusion=0.5, deposit=0.0, dtype=torch.float64, backend="torch")
    stages.diffuse_and_decay(sim.colony)
    symbol = (1 + 2 * math.cos(k * angle)) * (1 + 2 * math.cos(angle)) / 9
    assert torch.allclose(sim.colony.fields[1][0], 0.9 * (0.5 + 0.5 * symbol) * mode, atol=1e-12, rtol=0)


def test_total_in_a_steady_state() -> None:
    """Deposits balance decay: sum -> keep / decay x agents x deposit."""
    sim = Physarum((24, 24), 50, decay=0.25, deposit=2.0, backend="torch").run(60)
    assert float(sim.field.sum()) == pytest.approx(0.75 / 0.25 * 50 * 2, rel=1e-5)
