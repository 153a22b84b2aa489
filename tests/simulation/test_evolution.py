"""The method of lines against exact solutions, batches, and steps that would blow up."""

import math

import pytest
import torch

from pinnfuse import PDE, Grid
from pinnfuse.grid import Dirichlet
from pinnfuse.simulation import Evolution, solve
from pinnfuse.simulation.evolution import right_hand_side

HEAT = PDE("u", "t x y", {"k": 0.3}, {"heat": "u_t - k*(u_xx + u_yy)"})
BURGERS = PDE("u", "t x", {"nu": 0.05}, {"burgers": "2*u_t + 2*D(u**2/2, x) - 2*nu*u_xx"})
WAVE = PDE("u v", "t x", {"c": 2.0}, {"a": "v_t - c**2*u_xx", "b": "u_t - v"})
TURN = 2 * math.pi


def line(n: int, order: int = 2, boundary="periodic") -> Grid:
    return Grid("x", TURN / n, boundary=boundary, order=order)


def test_a_mode_decays_by_the_discrete_symbol():
    grid = Grid("x y", (TURN / 12, TURN / 16), boundary="periodic")
    at = grid.coordinates((12, 16), dtype=torch.float64)
    u0 = (at["x"].sin()[:, None] * (2 * at["y"]).cos())[None, None]
    found = solve(HEAT, u0, grid, [0.0, 0.5, 1.0])
    rate = 0.3 * ((2 * math.sin(TURN / 24) / (TURN / 12)) ** 2 + (2 * math.sin(2 * TURN / 32) / (TURN / 16)) ** 2)
    assert found.shape == (1, 3, 1, 12, 16)
    assert torch.allclose(found[0, 2], math.exp(-rate) * u0[0], atol=1e-4)


def test_burgers_travelling_front_converges_at_second_order():
    """u = 1 - tanh((x - t)/(2 nu)) on walls that hold it."""
    nu, errors = 0.25, []
    for n in (40, 80):
        grid = Grid("x", 8.0 / n, boundary={"x": (Dirichlet(2.0), Dirichlet(0.0))}, origin=-4.0)
        x = grid.coordinates((n - 1,), dtype=torch.float64)["x"]
        found = solve(BURGERS, (1 - (x / (2 * nu)).tanh())[None, None], grid, [0.0, 1.0], parameters={"nu": nu})
        errors.append(float((found[0, 1, 0] - (1 - ((x - 1) / (2 * nu)).tanh())).abs().max()))
    assert errors[1] < 0.02
    assert errors[0] / errors[1] > 3.3


def test_the_wave_comes_back_after_a_period():
    grid = line(64, order=6)
    x = grid.coordinates((64,), dtype=torch.float64)["x"]
    u0 = torch.stack([x.sin() + (2 * x).cos(), 0 * x])[None]
    assert torch.allclose(solve(WAVE, u0, grid, [0.0, math.pi])[0, 1], u0[0], atol=2e-3)
    assert list(right_hand_side(WAVE, ("x",))[0].equations) == ["u", "v"]


def test_time_and_coordinates_in_the_equation():
    """u_t = (cos t + sin t) sin(x) - u from 0 is sin(t) sin(x)."""
    pde = PDE("u", "t x", equations={"e": "u_t - (cos(t) + sin(t))*sin(x) + u"})
    grid = line(16)
    x = grid.coordinates((16,), dtype=torch.float64)["x"]
    found = solve(pde, torch.zeros(1, 1, 16, dtype=torch.float64), grid, [0.0, 1.0], dt=0.1)
    assert torch.allclose(found[0, 1, 0], math.sin(1.0) * x.sin(), atol=1e-6)


def test_a_batch_with_its_own_parameters_is_its_members():
    torch.manual_seed(0)
    grid, u0 = line(24), torch.randn(3, 1, 24, dtype=torch.float64)
    nu = torch.tensor([0.5, 0.6, 0.7], dtype=torch.float64)
    batch = solve(BURGERS, u0, grid, [0.0, 0.1], dt=0.005, parameters={"nu": nu})
    for k in range(3):
        single = solve(BURGERS, u0[k : k + 1], grid, [0.0, 0.1], dt=0.005, parameters={"nu": float(nu[k])})
        assert torch.allclose(batch[k], single[0], atol=1e-12)


def test_gradients_reach_the_start_and_the_parameters():
    grid = line(8)
    u0 = torch.randn(1, 1, 8, dtype=torch.float64, requires_grad=True)
    nu = torch.tensor([0.4], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda u, k: solve(BURGERS, u, grid, [0.0, 0.05], dt=0.025, parameters={"nu": k}), (u0, nu)
    )


@pytest.mark.parametrize(("pde", "start"), [(HEAT, torch.zeros(1, 1, 16, 16)), (BURGERS, torch.zeros(1, 1, 16))])
def test_the_stable_step_is_that_of_the_largest_symbol(pde, start):
    grid = Grid("x y" if pde is HEAT else "x", 0.1, boundary="periodic")
    k = 0.3 * 2 if pde is HEAT else 0.05
    found = Evolution(pde, grid).largest_eigenvalue(start.double())
    assert found == pytest.approx(4 * k / 0.1**2, rel=0.03)


def test_an_unstable_step_is_refused():
    with pytest.raises(ValueError, match="largest stable step is 0.0"):
        solve(HEAT, torch.rand(1, 1, 16, 16), Grid("x y", 0.1, boundary="periodic"), [0.0, 1.0], dt=0.1)


@pytest.mark.parametrize(
    ("equations", "fields", "message"),
    [
        ({"e": "u_tt - u_xx"}, "u", "first order"),
        ({"e": "u*u_t - u_xx"}, "u", "times a number"),
        ({"e": "u_t + v_t", "f": "v_t - u"}, "u v", "one time derivative"),
        ({"e": "u_t - v_x"}, "u v", "no equation with the time derivative of \\['v'\\]"),
        ({"e": "u_t - v_x", "f": "u_x"}, "u v", "FluidSimulator"),
    ],
)
def test_equations_that_are_not_an_evolution(equations, fields, message):
    pde = PDE(fields, "t x", equations=equations)
    with pytest.raises(ValueError, match=message):
        solve(pde, torch.zeros(1, len(pde.fields), 16), line(16), [0.0, 1.0])


def test_a_step_that_the_fields_outgrow():
    """The stable step is that of the fields at a look; where they grow before the next one, the way is taken again."""
    grid = line(16)
    u0 = grid.coordinates((16,), dtype=torch.float64)["x"].sin()[None, None]
    faster = PDE("u", "t x", equations={"e": "u_t + 200*t**2*u_x - 0.01*u_xx"})  # at the start nothing moves
    far = solve(faster, u0, grid, [0.0, 0.5])[:, -1]
    fine = solve(faster, u0, grid, [0.0, 0.25, 0.5], dt=1e-3)[:, -1]
    torch.testing.assert_close(far, fine, rtol=0.0, atol=2e-2)
    with pytest.raises(ValueError, match="unstable at time 0.5; the largest stable step"):
        solve(faster, u0, grid, [0.0, 0.5], dt=0.03)


@pytest.mark.parametrize("times", [[0.0, 2.0], [0.0, 0.5, 0.9, 1.2]])
def test_a_solution_that_ends_is_no_result(times):
    pde = PDE("u", "t x", equations={"e": "u_t - u**2"})  # 1 / (1 - t)
    with pytest.raises(FloatingPointError, match="time .* ask for more output times"):
        solve(pde, torch.ones(1, 1, 16), line(16), times)


def test_starts_that_are_no_numbers():
    with pytest.raises(ValueError, match="`u0` must be finite"):
        solve(BURGERS, torch.full((1, 1, 16), math.nan), line(16), [0.0, 1.0])


def test_bad_times():
    for times in (0.1, "ab", [], [0.0, math.inf], [0.0, math.nan]):
        with pytest.raises(ValueError, match="finite and rising"):
            solve(BURGERS, torch.zeros(1, 1, 16), line(16), times)
    with pytest.raises(ValueError, match="rising"):
        solve(BURGERS, torch.zeros(1, 1, 16), line(16), [0.0, 1.0, 0.5])
    with pytest.raises(ValueError, match="`dt` must be > 0"):
        solve(BURGERS, torch.zeros(1, 1, 16), line(16), [0.0, 1.0], dt=-1.0)


def test_the_stable_step_may_be_found_less_often(monkeypatch):
    pde = PDE("u", "t x", {"nu": 0.1}, {"heat": "u_t - nu*u_xx"})
    grid = Grid("x", 0.1, boundary="periodic")
    u0 = torch.randn(1, 1, 10, dtype=torch.float64)
    times = [0.0, 0.1, 0.2, 0.3, 0.4]
    looks = []
    found = Evolution.stable_step
    monkeypatch.setattr(Evolution, "stable_step", lambda self, u, t=0.0: looks.append(t) or found(self, u, t))
    often = solve(pde, u0, grid, times)
    rarely = solve(pde, u0, grid, times, check_every=3)
    assert looks == [*times, 0.0, 0.3, 0.4]
    assert torch.allclose(often, rarely, rtol=1e-6)
    with pytest.raises(ValueError, match="`check_every` must be at least 1; got 0"):
        solve(pde, u0, grid, times, check_every=0)
