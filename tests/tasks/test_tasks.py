"""Data of the tasks is what the equations say, and what the physics loss says it is."""

import pytest
import torch

from pinnfuse import tasks
from pinnfuse.grid import derivative
from pinnfuse.tasks.navier_stokes import velocity

SMALL = {
    "darcy": {"points": 9},
    "navier_stokes": {"points": 12, "levels": 5, "ahead": 2},
    "burgers": {"points": 32, "levels": 6, "ahead": 2, "nu": 0.05},
    "gray_scott": {"points": 16, "levels": 5, "ahead": 2, "length": 0.5},
    "physarum": {"points": 8, "coarse": 4, "levels": 5, "warm_up": 1},
}


@pytest.fixture(scope="module", params=list(SMALL))
def made(request):
    """(task, one block of its samples in float64)."""
    task = tasks.get(request.param, **SMALL[request.param])
    return task, task.generate(0, task.block, 0, dtype=torch.float64)


def residual_share(task, inputs, prediction) -> float:
    """Root of the residual over that of the trivial prediction."""

    def norm(p):
        return float(task.misfit(task.physics(), task.residual(inputs, p)).sqrt())

    return norm(prediction) / norm(task.trivial(inputs))


def test_arrays_are_as_announced(made):
    task, arrays = made
    assert {name: tuple(a.shape[1:]) for name, a in arrays.items()} == task.arrays
    assert all(bool(a.isfinite().all()) for a in arrays.values())
    inputs, targets = task.pair(arrays, torch.zeros(task.block, dtype=torch.long))
    inside, outside = task.channels
    assert task.encode(inputs).shape == (task.block, inside, *task.shape)
    channels = torch.randn(task.block, outside, *task.shape, dtype=torch.float64)
    assert task.decode(inputs, channels).shape == targets.shape == task.trivial(inputs).shape
    assert torch.equal(task.decode(inputs, torch.zeros_like(channels)), task.trivial(inputs))
    assert task.by_field(targets).shape[:2] == (task.block, len(task.fields))


def test_no_agent_is_lost_in_a_prediction():
    task = tasks.get("physarum", **SMALL["physarum"])
    inputs, channels = torch.rand(3, 2, 2, 8, 8), torch.randn(3, 4, 8, 8)
    prediction = task.decode(inputs, channels)
    before, after = (v.mean((-2, -1)) for v in (task.trivial(inputs), prediction))
    assert torch.allclose(after[:, :, 0], before[:, :, 0], atol=1e-6)
    assert not torch.allclose(after[:, :, 1], before[:, :, 1], atol=1e-3)  # the field decays


@pytest.mark.parametrize("centring", ["node", "cell"])
@pytest.mark.parametrize("contrast", [(12.0, 3.0), (1.0, 1000.0)], ids=str)
def test_darcys_solution_has_no_residual(centring, contrast):
    task = tasks.get("darcy", points=10, centring=centring, high=contrast[0], low=contrast[1])
    inputs, targets = task.pair(task.generate(0, 16, 3, dtype=torch.float64), torch.zeros(16, dtype=torch.long))
    assert residual_share(task, inputs, targets) < 1e-8  # the solver's tolerance is 1e-11 of the right-hand side
    assert residual_share(task, inputs, 1.01 * targets) > 5e-3
    assert set(inputs.unique().tolist()) == set(contrast)


@pytest.mark.parametrize("centring", ["node", "cell"])
def test_darcy_with_one_material_is_poissons_equation(centring):
    """u(1/2, 1/2) of -laplacian(u) = 1 is 0.0736713..., a series; second order."""
    errors = []
    for points in (15, 31) if centring == "node" else (16, 32):
        task = tasks.get("darcy", points=points, centring=centring)
        u = task.solve(torch.ones(1, points, points, dtype=torch.float64))[0]
        middle = (
            u[points // 2, points // 2]
            if centring == "node"
            else u[points // 2 - 1 :, points // 2 - 1 :][:2, :2].mean()
        )
        errors.append(abs(float(middle) - 0.0736713532814))
    assert errors[1] < 5e-4 and errors[0] / errors[1] > 3.5


@pytest.mark.parametrize(("name", "step"), [("navier_stokes", 0.2), ("burgers", 0.01), ("gray_scott", 4.0)])
def test_the_residual_of_a_solution_is_that_of_the_midpoint_rule(name, step):
    """A quarter of it at half the step: second order, away from the rough start."""
    shares = []
    for levels, h in ((4, step), (8, step / 2)):
        options = SMALL[name] | {"step": h, "levels": levels, "ahead": 1}
        task = tasks.get(name, **options)
        task = type(task)(**{**vars(task), "block": 4})
        arrays = task.generate(0, 4, 0, dtype=torch.float64)
        inputs, targets = task.pair(arrays, torch.full((4,), levels - 1))
        given = task.residual(inputs, targets)
        shares.append(float(task.physics().residuals(given.fields, given.data).square().mean().sqrt()))
    assert 3.2 < shares[0] / shares[1] < 5
    assert residual_share(task, inputs, targets) < 0.05


def test_velocity_turns_as_the_vorticity_says():
    task = tasks.get("navier_stokes", points=12)
    w = task.sample(torch.Generator().manual_seed(0))[0]
    flow = velocity(w, task.grid)
    u, v = flow["u"], flow["v"]
    assert float((derivative(u, task.grid, "x") + derivative(v, task.grid, "y")).abs().max()) < 1e-12 * float(
        w.abs().max()
    )
    x, y = (a.double() for a in task.grid.coordinates((12, 12), dtype=torch.float64).values())
    wave = 2 * torch.pi
    rolls = torch.sin(wave * x)[:, None] * torch.sin(wave * y)
    flow = velocity(rolls, task.grid)  # psi = rolls / 2 wave^2
    expected = torch.sin(wave * x)[:, None] * torch.cos(wave * y) / (2 * wave)
    assert float((flow["u"] - expected).abs().max()) < 0.02 * float(expected.abs().max())


def test_the_residual_is_differentiable_through_the_velocity():
    task = tasks.get("navier_stokes", points=8, ahead=1, levels=1)
    inputs = torch.randn(1, 1, 1, 8, 8, dtype=torch.float64)
    prediction = torch.randn(1, 1, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    loss = task.physics()

    def value(p):
        return task.misfit(loss, task.residual(inputs, p))

    assert torch.autograd.gradcheck(value, (prediction,), fast_mode=True)
    data = {k: v.detach() for k, v in task.residual(inputs, prediction).data.items()}
    (whole,) = torch.autograd.grad(value(prediction), prediction)
    (frozen,) = torch.autograd.grad(loss(torch.cat([inputs, prediction], 1), None, data), prediction)
    assert float((whole - frozen).norm()) > 1e-3 * float(whole.norm())  # the velocity's share is there


@pytest.mark.parametrize("centring", ["node", "cell"])
def test_darcys_misfit_is_the_size_of_the_error_at_every_wavenumber(centring):
    """Errors of one material: exactly; a residual that were squared itself would weigh the fine wave 200 times more."""
    task = tasks.get("darcy", points=16, centring=centring, high=1.0, low=1.0)
    inputs = torch.ones(1, 1, 16, 16, dtype=torch.float64)
    x, y = task.grid.coordinates((16, 16), dtype=torch.float64).values()
    exact = task.solve(inputs[:, 0])[None]
    sizes = []
    for k in (1, 10):
        error = torch.sin(k * torch.pi * x)[:, None] * torch.sin(k * torch.pi * y)
        sizes.append(residual_share(task, inputs, exact + 0.01 * error / error.square().mean().sqrt()))
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05 if centring == "cell" else 1e-6)
    assert sizes[0] == pytest.approx(0.01 / float(exact.square().mean().sqrt()), rel=0.02)


def test_darcys_misfit_is_differentiable():
    task = tasks.get("darcy", points=8)
    inputs = task.generate(0, 16, 0, dtype=torch.float64)["k"][:2, None]
    prediction = torch.randn(2, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    physics = task.physics()
    assert torch.autograd.gradcheck(
        lambda p: task.misfit(physics, task.residual(inputs, p)), prediction, fast_mode=True
    )


def test_scales_bring_numbers_to_size_one(made):
    task, arrays = made
    n = task.starts({k: a.shape for k, a in arrays.items()})
    inputs, targets = task.pair(arrays, torch.arange(task.block) % n)
    scales = task.scales(inputs)
    channels = (task.encode(inputs) - scales.mean.view(-1, *(1,) * len(task.shape))) / scales.spread.view(
        -1, *(1,) * len(task.shape)
    )
    assert float(channels.std()) == pytest.approx(1.0, abs=0.1)
    change = task.by_field(targets - task.trivial(inputs)).std(dim=(0, 2))
    size = scales.output.reshape(-1, len(task.fields))[-1]
    share = change / size
    assert bool(((share > 0.05) & (share < 3)).all()), share


def test_positions_tell_where_walls_are():
    task = tasks.get("darcy", points=9)
    x, y = task.positions(torch.zeros(1, dtype=torch.float64))
    assert torch.allclose(x[:, 0], torch.linspace(0.1, 0.9, 9, dtype=torch.float64)) and torch.equal(x.T, y)
    assert tasks.get("navier_stokes", points=8).positions(torch.zeros(1)).shape == (4, 8, 8)
    assert tasks.get("burgers").positions(torch.zeros(1)).shape == (0, 128)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("darci", {}, "Did you mean 'darcy'"),
        ("darcy", {"point": 9}, "no option 'point'. Did you mean 'points'"),
        ("darcy", {"points": 4}, "at least 8; got 4"),
        ("darcy", {"centring": "edge"}, "must be one of 'node', 'cell'; got 'edge'"),
        ("burgers", {"nu": -1.0}, "`nu` > 0"),
        ("burgers", {"levels": 2}, "`levels` must be at least history [+] ahead - 1 = 5; got 2"),
        ("gray_scott", {"step": 0.0}, "`step` must be > 0"),
        ("navier_stokes", {"ahead": 0}, "`ahead` must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        tasks.get(name, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "dta"}, "Did you mean 'data'"),
        ({"labelled": 1.5}, "labelled"),
        ({"labelled": 0.001, "samples": 10}, "the data term needs a sample"),
        ({"precision": "half"}, "precision"),
        ({"batch": 0}, "`batch` must be at least 1"),
        ({"physics_weight": -1.0}, "physics_weight"),
        ({"unlabelled_starts": "last"}, "must be 'first' or 'any'"),
    ],
)
def test_specs_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        tasks.SurrogateSpec(**options)
