"""Messages for what a caller can get wrong."""

import pytest
import torch

from pinnfuse import PDE, BackendUnavailable, Grid
from pinnfuse.grid import FusedGridResidualLoss

HEAT = PDE("u", "t x y", parameters={"nu": 0.1}, data="f", equations={"heat": "u_t - nu*(u_xx + u_yy) - f"})
GRID = Grid("x y", 0.1, boundary="periodic")
F = torch.zeros(8, 9)


def make(**changes):
    return FusedGridResidualLoss(**{"pde": HEAT, "grid": GRID, "time_step": 0.1, "time_scheme": "bdf2"} | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pde": "heat"}, "`pde` must be a pinnfuse.PDE"),
        ({"grid": 0.1}, "`grid` must be a Grid"),
        ({"grid": {"v": GRID}}, r"unknown \['v'\]"),
        ({"grid": Grid("x z", 0.1, boundary="periodic")}, "must be the PDE's coordinates"),
        ({"time_scheme": "bdf3"}, "Did you mean 'bdf2'"),
        ({"time_scheme": None, "time_step": None}, "time coordinate 't'"),
        ({"time_scheme": None}, "`time_step` needs a `time_scheme`, one of 'forward_euler', "),
        ({"time_step": None}, "`time_step` must be a finite number"),
        ({"time_step": -0.1}, "`time_step` must be > 0"),
        ({"time_step": torch.tensor(0.1, requires_grad=True)}, "without gradient"),
        ({"backend": "cuda"}, "unknown `backend`"),
        ({"equation_weights": {"wave": 1.0}}, "names"),
        ({"equation_weights": [-1.0]}, ">= 0"),
    ],
)
def test_definition(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_grids_that_differ_in_more_than_their_walls():
    pde = PDE("u v", "x", equations={"e": "u_x + v_x"})
    with pytest.raises(ValueError, match="differ in their walls only"):
        FusedGridResidualLoss(pde, {"u": Grid("x", 0.1, boundary="neumann"), "v": Grid("x", 0.2, boundary="neumann")})
    node = {"u": Grid("x", 0.1, boundary="neumann"), "v": Grid("x", 0.1, boundary="dirichlet")}
    with pytest.raises(ValueError, match="at different points"):
        FusedGridResidualLoss(pde, node)


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        (torch.zeros(3, 1, 8, 9), {}, r"\[B, T, C, x, y\].*fields\[None\]"),
        (torch.zeros(1, 3, 2, 8, 9), {}, "C = 1 fields"),
        (torch.zeros(1, 2, 1, 8, 9), {}, "at least 3 time levels"),
        (torch.zeros(1, 3, 1, 8, 2), {}, "at least 3 points along 'y'"),
        (torch.zeros(1, 3, 1, 8, 9, dtype=torch.int64), {}, "floating point"),
        (torch.zeros(2, 3, 1, 8, 9), {"parameters": {"mu": 1.0}}, "unknown 'mu'"),
        (torch.zeros(2, 3, 1, 8, 9), {"parameters": {"nu": torch.ones(3)}}, r"one per sample, \[B\] = \[2\]"),
        (torch.zeros(2, 3, 1, 8, 9), {"data": {}}, "missing"),
        (torch.zeros(2, 3, 1, 8, 9), {"data": {"f": torch.ones(9, 8)}}, "must broadcast"),
        (torch.zeros(2, 3, 1, 8, 9), {"point_weights": torch.ones(7)}, "must broadcast"),
        (torch.zeros(2, 3, 1, 8, 9), {"point_weights": -torch.ones(9)}, ">= 0"),
        (torch.zeros(2, 3, 1, 8, 9).to_sparse(), {}, "Use fields.to_dense"),
        (torch.zeros(2, 3, 1, 8, 9), {"parameters": {"nu": torch.ones(2) + 0j}}, r"Take parameters\['nu'\].real"),
        (torch.zeros(2, 3, 1, 8, 9), {"data": {"f": F + 0j}}, r"Take data\['f'\].real"),
        (torch.zeros(2, 3, 1, 8, 9), {"point_weights": torch.ones(9) + 0j}, "Take point_weights.real"),
    ],
)
def test_calls(fields, arguments, message):
    with pytest.raises(ValueError, match=message):
        make()(fields, **{"data": {"f": F}} | arguments)


def test_an_explicit_backend_does_not_fall_back(monkeypatch):
    monkeypatch.delenv("PINNFUSE_INTERPRET", raising=False)
    with pytest.raises(BackendUnavailable, match="CUDA card"):
        make(backend="triton")(torch.zeros(1, 3, 1, 8, 9), data={"f": F})


def test_unknown_constant():
    with pytest.raises(ValueError, match="must be a constant parameter"):
        make().set_parameter("mu", 1.0)
