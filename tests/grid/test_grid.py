"""The grid as a value: what it accepts, what it refuses, where its points lie."""

import numpy
import pytest
import torch

from pinnfuse import Grid
from pinnfuse.grid import Dirichlet, Neumann, OneSided, Periodic, laplacian


def test_a_value():
    a = Grid("x y", 0.1, boundary={"x": "periodic", "y": (Dirichlet(1), Neumann(-2.0))}, order=4)
    b = Grid(("x", "y"), {"x": 0.1, "y": 0.1}, boundary={"y": (Dirichlet(1.0), Neumann(-2)), "x": Periodic()}, order=4)
    assert a == b and hash(a) == hash(b) and len({a, b}) == 1
    assert a.sides["y"] == (Dirichlet(1.0), Neumann(-2.0)) and a.periodic == {"x": True, "y": False}
    assert a != Grid("x y", 0.1, boundary="periodic", order=4)
    with pytest.raises(AttributeError):
        a.order = 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"spacing": 0.0}, "`spacing` must be > 0"),
        ({"spacing": (0.1, -0.1)}, "-0.1 along 'y'"),
        ({"spacing": float("nan")}, "finite"),
        ({"spacing": (0.1, 0.1, 0.1)}, "one for each"),
        ({"boundary": {"x": "periodic"}}, "missing \\['y'\\]"),
        ({"boundary": {"x": "periodic", "z": "periodic"}}, "unknown axis in `boundary`; got 'z'"),
        ({"boundary": "dirichlett"}, "Did you mean 'dirichlet'"),
        ({"boundary": {"x": ("periodic", "neumann"), "y": "periodic"}}, "periodic at both ends"),
        ({"boundary": None}, "must be Periodic"),
        ({"order": 3}, "one of"),
        ({"centring": "edge"}, "unknown `centring`"),
        ({"axes": "x x"}, "distinct"),
        ({"axes": "x y z t"}, "one to three"),
        ({"axes": 2}, "distinct names"),
        ({"axes": (1, 2)}, "distinct names"),
        ({"length": (1.0, -1.0)}, "`length` must be > 0 along every axis; got -1 along 'y'"),
        ({"shape": 8.5}, "`shape` must be whole"),
        ({"shape": "ab"}, "`shape` must be finite"),
    ],
)
def test_refuses(arguments, message):
    given = {"axes": "x y", "spacing": 0.1, "boundary": "periodic"} | arguments
    with pytest.raises(ValueError, match=message):
        Grid(**given)


def test_numbers_of_other_libraries():
    plain = Grid("x y", 0.5, boundary="periodic")
    assert Grid("x y", torch.tensor(0.5), boundary="periodic") == plain
    assert Grid(["x", "y"], numpy.array([0.5, 0.5]), boundary="periodic") == plain
    assert Grid("x y", 0.5, boundary="periodic", shape=(numpy.int64(4), 6)).shape == (4, 6)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (torch.zeros(6, 6, dtype=torch.complex64), "Take u.real"),
        (torch.zeros(6, 6).to(torch.float8_e4m3fn), "16, 32 or 64 bits.*Use u.float"),
        (torch.zeros(6, 6).to_sparse(), "Use u.to_dense"),
    ],
)
def test_fields_that_no_operator_can_take(field, message):
    with pytest.raises(ValueError, match=message):
        laplacian(field, Grid("x y", 0.5, boundary="periodic"))


def test_boundary_is_required():
    with pytest.raises(TypeError):
        Grid("x y", 0.1)
    with pytest.raises(ValueError, match="loss term of its own"):
        Dirichlet(torch.zeros(3))


def test_duplicated_end_point():
    grid = Grid("x y", (0.25, 0.5), boundary={"x": "periodic", "y": "dirichlet"}, length=(1.0, 2.0))
    assert grid.check(torch.zeros(2, 4, 3), "test") == (4, 3)
    with pytest.raises(ValueError, match="repeats the first. Drop it: u.narrow"):
        grid.check(torch.zeros(2, 5, 3), "test")
    with pytest.raises(ValueError, match="length is 2, 3 points"):
        grid.check(torch.zeros(2, 4, 4), "test")
    x = torch.linspace(0, 1, 5)
    with pytest.raises(ValueError, match="repeats the first"):
        Grid.from_coordinates({"x": x}, boundary="periodic", period={"x": 1.0})
    assert Grid.from_coordinates({"x": x[:-1]}, boundary="periodic", period={"x": 1.0}).spacing == (0.25,)
    with pytest.raises(ValueError, match="uniformly"):
        Grid.from_coordinates({"x": x**2}, boundary="periodic")
    with pytest.raises(ValueError, match="missing \\['y'\\]"):
        Grid.from_coordinates({"x": x, "y": x}, boundary={"x": "periodic"})
    with pytest.raises(ValueError, match="'x' must hold numbers"):
        Grid.from_coordinates({"x": "0 1 2"}, boundary="periodic")


@pytest.mark.parametrize("centring", ["node", "cell"])
@pytest.mark.parametrize("sides", [("periodic", "periodic"), ("dirichlet", "neumann"), ("neumann", "one-sided")])
def test_coordinates_round_trip(sides, centring):
    grid = Grid("x", 0.125, boundary={"x": sides}, centring=centring, origin=-1.0, shape=9)
    x = grid.coordinates((9,), dtype=torch.float64)["x"]
    back = Grid.from_coordinates({"x": x}, boundary={"x": sides}, centring=centring)
    torch.testing.assert_close(back.coordinates((9,), dtype=torch.float64)["x"], x)
    assert x[0] == -1.0 + 0.125 * {"cell": 0.5, "node": float(sides[0] == "dirichlet")}[centring]


def test_fields():
    grid = Grid("x y", 1.0, boundary=OneSided(), shape=(4, None))
    with pytest.raises(ValueError, match="must have 4 points along 'x'"):
        grid.check(torch.zeros(3, 4), "test")
    with pytest.raises(ValueError, match="floating point"):
        grid.check(torch.zeros(4, 4, dtype=torch.int64), "test")
    with pytest.raises(ValueError, match=r"must be \[..., components, x, y\]"):
        grid.check(torch.zeros(4, 4), "test", leading=1)
