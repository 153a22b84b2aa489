"""What is read, at which time, and how expressions under a derivative are discretised."""

import math

import pytest
import torch

from pinnfuse import PDE, Grid
from pinnfuse.grid import FusedGridResidualLoss
from pinnfuse.grid.discretise import discretise
from pinnfuse.grid.schemes import SCHEMES

HEAT = PDE("u", "t x", parameters={"nu": 0.1}, equations={"heat": "u_t - nu*u_xx"})
LINE = Grid("x", 0.1, boundary="periodic")


def names(form):
    return [part.name for part in form.parts]


@pytest.mark.parametrize("name", SCHEMES)
def test_time_schemes_are_exact_on_polynomials(name):
    """u = t^k: the difference equals k t^(k-1) at the stage's time, up to the order of the scheme."""
    scheme = SCHEMES[name]
    order = 1 if "euler" in name else 2
    for derivative, levels in scheme.differences:
        for k in range(order + derivative):
            found = sum(c * float(level) ** k for level, c in levels)
            times = sum(stage.weight * _power(stage.time, k, derivative) for stage in scheme.stages)
            assert found == pytest.approx(times, abs=1e-12)
    for stage in scheme.stages:
        assert sum(c for _, c in stage.values) == 1
        assert sum(c * level for level, c in stage.values) == stage.time
    assert sum(stage.weight for stage in scheme.stages) == 1


def _power(t, k, derivative):
    """The derivative of t^k."""
    return math.perm(k, derivative) * t ** max(0, k - derivative)


def test_leaves_of_two_stages_share_the_time_difference():
    form = discretise(HEAT, ("x",), SCHEMES["crank_nicolson"], 0.1)
    assert names(form) == ["u_t", "u_xx__0", "u_xx__1"]
    assert form.leaves[0].levels == ((0, -10.0), (1, 10.0))


def test_conservative_terms_keep_their_form():
    pde = PDE(
        "u k", "x", parameters={"c": 2.0}, equations={"e": "D(c*u**2 + u, x) + D(k*D(u, x), x) + D(c*D(u, x), x)"}
    )
    form = discretise(pde, ("x",), None, None)
    assert {(c.index, str(c.expression).replace("!", "")) for c in form.composites} == {((1,), "u**2"), ((2,), "k*u")}
    assert names(form)[:2] == ["u", "u_x"] and "k_xx" in names(form)


@pytest.mark.parametrize("text", ["D(x*u, x)", "D(u*D(u, x)*D(u, x), x)", "D(c**u, x)", "D(u*D(u, x), x, 2)"])
def test_other_terms_are_carried_out(text):
    pde = PDE("u", "x", parameters={"c": 2.0}, equations={"e": text})
    assert not discretise(pde, ("x",), None, None).composites


@pytest.mark.parametrize("order", [2, 4, 6])
def test_conservative_terms_sum_to_zero_over_a_period(order):
    pde = PDE("u k", "x y", equations={"e": "D(u**3, x) + D(k*D(u, x), x) + D(k**2*u*D(u, y), y)"})
    loss = FusedGridResidualLoss(pde, Grid("x y", (0.1, 0.3), boundary="periodic", order=order), backend="torch")
    r = loss.residuals(torch.randn(2, 2, 12, 9, dtype=torch.float64))
    assert r.sum((2, 3)).abs().max() < 1e-9 * r.abs().max() * 108


def test_flux_form_is_the_compact_one():
    pde = PDE("u k", "x", equations={"e": "D(k*D(u, x), x)"})
    u, k = torch.rand(2, 9, dtype=torch.float64)
    r = FusedGridResidualLoss(pde, LINE, backend="torch").residuals(torch.stack([u, k])[None])[0, 0]
    flux = (k + k.roll(-1)) * (u.roll(-1) - u) / 2
    torch.testing.assert_close(r, (flux - flux.roll(1)) / 0.01)


def test_time_derivatives_that_a_scheme_lacks():
    wave = PDE("u", "t x", equations={"wave": "u_tt - u_xx"})
    discretise(wave, ("x",), SCHEMES["central"], 0.1)
    with pytest.raises(ValueError, match="time_scheme='central'"):
        discretise(wave, ("x",), SCHEMES["bdf2"], 0.1)
