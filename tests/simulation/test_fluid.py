"""Flows with known solutions; the divergence after every step; steps that would blow up."""

import math

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.grid import Dirichlet
from pinnfuse.reference.cavity import CavityReference
from pinnfuse.simulation import FluidSimulator

LID = {"x": "dirichlet", "y": (Dirichlet(0.0), Dirichlet(1.0))}
TURN = 2 * math.pi


def cavity(n: int, **options) -> FluidSimulator:
    grid = Grid("x y", 1 / n, centring="cell", boundary=LID)
    return FluidSimulator(grid, (n, n), dtype=torch.float64, **({"viscosity": 0.01} | options))


def torus(shape=(24, 32), viscosity=0.05, **options) -> FluidSimulator:
    grid = Grid("x y", [TURN / n for n in shape], centring="cell", boundary="periodic")
    return FluidSimulator(grid, shape, viscosity, dtype=torch.float64, **options)


def vortices(x, y):
    return x.cos() * y.sin(), -x.sin() * y.cos()


def start(flow: FluidSimulator) -> FluidSimulator:
    flow.set_velocity(lambda x, y: vortices(x, y)[0], lambda x, y: vortices(x, y)[1])
    return flow


def test_taylor_green_decays_at_the_rate_of_the_discrete_laplacian():
    flow = start(torus())
    before = flow.u.clone()
    flow.run(until=1.0)
    hx, hy = flow.grid.spacing
    rate = 0.05 * ((2 * math.sin(hx / 2) / hx) ** 2 + (2 * math.sin(hy / 2) / hy) ** 2)
    factor = float((flow.u * before).sum() / (before * before).sum())
    assert factor == pytest.approx(math.exp(-rate), rel=1e-5)
    assert factor == pytest.approx(math.exp(-0.1), rel=1e-3)


def test_pressure_of_taylor_green():
    flow = start(torus(shape=(48, 48), viscosity=0.01))
    flow.step(1e-4)
    at = flow.grid.coordinates(flow.shape, dtype=torch.float64)
    exact = -0.25 * ((2 * at["x"]).cos()[:, None] + (2 * at["y"]).cos()[None, :])
    assert (flow.pressure() - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("make", [cavity, lambda n: start(torus(shape=(n, n)))])
def test_divergence_is_at_rounding_and_momentum_is_kept(make):
    flow = make(16)
    momentum = [float(w.sum()) for w in (flow.u, flow.v)]
    flow.run(steps=20)
    assert float(flow.divergence().abs().max()) < 1e-12
    if flow.x.periodic:
        assert [float(w.sum()) for w in (flow.u, flow.v)] == pytest.approx(momentum, abs=1e-10)


def test_the_cavity_converges_at_second_order():
    reference, errors = CavityReference(100.0), []
    for n in (12, 24):
        flow = cavity(n).run(until=15.0)
        line = flow.u[n // 2 - 1]  # the face at x = 1/2
        y = flow.grid.coordinates(flow.shape, dtype=torch.float64)["y"]
        points = torch.stack([torch.full_like(y, 0.5), y], dim=1).numpy()
        errors.append(float((line - torch.from_numpy(reference.solution(points)[:, 0])).abs().max()))
    assert errors[1] < 1.3e-2
    assert errors[0] / errors[1] > 3


def test_a_channel_between_moving_walls_reaches_the_straight_profile():
    grid = Grid(
        "x y", (0.25, 0.125), centring="cell", boundary={"x": "periodic", "y": (Dirichlet(-1.0), Dirichlet(2.0))}
    )
    flow = FluidSimulator(grid, (4, 8), viscosity=0.5, dtype=torch.float64).run(until=5.0)
    y = grid.coordinates((4, 8), dtype=torch.float64)["y"]
    assert torch.allclose(flow.u, (-1 + 3 * y).expand(4, 8), atol=1e-5)


def test_forcing_balances_friction():
    """f = nu sin y drives u = sin y, up to the discrete symbol."""
    flow = torus(shape=(8, 32), viscosity=1.0, forcing=(lambda x, y: y.sin(), lambda x, y: 0 * x))
    flow.run(until=12.0)
    at = flow.grid.coordinates(flow.shape, dtype=torch.float64)["y"]
    h = flow.grid.spacing[1]
    assert torch.allclose(flow.u, (at.sin() / (2 * math.sin(h / 2) / h) ** 2).expand_as(flow.u), atol=1e-5)


def test_a_batch_is_its_members():
    viscosity = torch.tensor([0.02, 0.1], dtype=torch.float64).reshape(2, 1, 1)
    batch = start(torus(viscosity=viscosity, batch=2)).run(steps=5, dt=0.02)
    for k, nu in enumerate((0.02, 0.1)):
        single = start(torus(viscosity=nu)).run(steps=5, dt=0.02)
        assert torch.allclose(batch.u[k], single.u, atol=1e-13)
        assert torch.allclose(batch.pressure()[k], single.pressure(), atol=1e-12)


def test_turning_the_plane_turns_the_flow():
    """u(x, y) in a box with its x axis periodic is v(y, x) in the box with both axes exchanged."""
    walls = (Dirichlet(0.3), Dirichlet(1.0))
    across = Grid("x y", (0.2, 0.1), centring="cell", boundary={"x": "periodic", "y": walls})
    along = Grid("x y", (0.1, 0.2), centring="cell", boundary={"x": walls, "y": "periodic"})
    one = FluidSimulator(across, (6, 8), 0.02, dtype=torch.float64)
    two = FluidSimulator(along, (8, 6), 0.02, dtype=torch.float64)
    torch.manual_seed(0)
    u, v = torch.randn(6, 8, dtype=torch.float64), torch.randn(6, 8, dtype=torch.float64)
    one.set_velocity(u, v)
    two.set_velocity(v.T, u.T)
    one.run(steps=3, dt=0.01), two.run(steps=3, dt=0.01)
    assert torch.allclose(one.u, two.v.T, atol=1e-13)
    assert torch.allclose(one.vorticity(), -two.vorticity().T, atol=1e-12)


def test_reports_come_at_their_steps():
    speeds = []
    flow = start(torus()).run(steps=25, dt=0.01, every=10, report=lambda f: speeds.append(f.max_speed()))
    assert len(speeds) == 3
    assert speeds[-1] == flow.max_speed() < speeds[0] < 1.0
    assert flow.time == pytest.approx(0.25)


def test_an_unstable_step_is_refused_and_nothing_is_lost():
    flow = start(torus())
    before = flow.u.clone()
    with pytest.raises(ValueError, match="largest stable step is"):
        flow.run(steps=10, dt=5.0)
    assert torch.equal(flow.u, before)
    start(flow).run(steps=200, dt=flow.stable_step())
    assert flow.max_speed() < 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"viscosity": -1.0}, "`viscosity`"),
        ({"viscosity": math.nan}, "`viscosity`"),
        ({"shape": (2, 8)}, "at least 4"),
        ({"grid": Grid("x y", 0.1, boundary="periodic")}, "centring='cell'"),
        ({"grid": Grid("x y", 0.1, boundary="neumann", centring="cell")}, "Dirichlet"),
        ({"grid": Grid("x y", 0.1, boundary="periodic", centring="cell", length=1.0)}, "8 points along 'x'"),
        ({"grid": 0.1}, "must be a pinnfuse.Grid"),
        ({"shape": (8.5, 8)}, "two numbers of cells"),
        ({"dtype": torch.int32}, "floating point"),
        ({"batch": 0}, "`batch` must be a whole number >= 1"),
        ({"viscosity": "thick"}, "`viscosity` must be a finite number"),
        ({"viscosity": torch.ones(3), "batch": 3}, r"one for each flow, \[3, 1, 1\].*Use viscosity.view"),
        ({"viscosity": torch.ones(8)}, "batch=8"),
        ({"forcing": lambda x, y: x}, "two functions"),
        ({"forcing": (lambda x, y: math.nan, lambda x, y: 0.0)}, "functions of `forcing` must be finite"),
    ],
)
def test_bad_input(options, message):
    grid = Grid("x y", 0.1, boundary="periodic", centring="cell")
    with pytest.raises(ValueError, match=message):
        FluidSimulator(**({"grid": grid, "shape": (8, 8), "viscosity": 0.1} | options))


def test_a_flow_that_outgrows_its_step():
    """At rest every step is stable; the forcing that follows is not known to it. Without a `dt` the step shrinks, with
    one the flow is that of the last look."""

    def make(dtype=torch.float64):
        grid = Grid("x y", 1 / 16, boundary="periodic", centring="cell")
        forcing = (lambda x, y: 20 * (2 * math.pi * y).sin() + 0 * x, lambda x, y: (2 * math.pi * x).sin() + 0 * y)
        return FluidSimulator(grid, (16, 16), 0.001, forcing=forcing, dtype=dtype)

    looks = []
    flow = make().run(1.0, every=20, report=looks.append)
    fine = make().run(1.0, dt=5e-4)
    assert flow.time == pytest.approx(1.0) and len(looks) > 1
    torch.testing.assert_close(flow.velocity()[0], fine.velocity()[0], rtol=1e-3, atol=1e-2)
    given = make()
    with pytest.raises(ValueError, match="would be unstable at time 2"):
        given.run(dt=0.5, steps=4)
    assert given.time == 0.0 and not given.u.any()
    with pytest.raises(ValueError, match="finite `until`"):
        given.run(math.inf)


def test_bad_fields_and_runs():
    flow = torus()
    with pytest.raises(ValueError, match="must be \\[24, 32\\]"):
        flow.set_velocity(torch.zeros(3, 3), torch.zeros(24, 32))
    with pytest.raises(ValueError, match="must be \\[24, 32\\]"):
        flow.set_velocity(torch.zeros(2, 24, 32), torch.zeros(24, 32))
    with pytest.raises(ValueError, match="functions of `set_velocity` must return what broadcasts"):
        flow.set_velocity(lambda x, y: torch.zeros(3, 3), lambda x, y: 0.0)
    with pytest.raises(ValueError, match="finite"):
        flow.set_velocity(torch.full((24, 32), math.nan), torch.zeros(24, 32))
    with pytest.raises(ValueError, match="either `until` or `steps`"):
        flow.run()
    with pytest.raises(ValueError, match="`dt` must be > 0"):
        flow.run(steps=1, dt=-0.1)


@pytest.mark.gpu
@pytest.mark.parametrize("walls", [False, True])
def test_captured_steps_are_the_same_steps(walls):
    make = (lambda: cavity(32, device="cuda")) if walls else lambda: start(torus(device="cuda"))
    one, two = make().run(steps=40, dt=1e-3, every=20), make()
    for _ in range(40):
        two.step(1e-3)
    for a, b in ((one.u, two.u), (one.v, two.v), (one.pressure(), two.pressure())):
        assert torch.allclose(a, b, atol=1e-12)
    assert one.time == pytest.approx(two.time)
