import pytest
import torch
from scipy.stats import qmc

from pinnfuse.domains import METHODS, Box, Disc, PointSet, Union, unit_cube
from pinnfuse.domains.region import shares

BOX = Box({"t": (0, 1), "x": (-1, 3), "y": (2, 2.5)})
REGIONS = {
    "box": BOX,
    "low": BOX.face("x", "low"),
    "both": BOX.face("y", "both"),
    "initial": BOX.initial(),
    "edge": BOX.slice({"x": 0.5, "y": 2.0}),
    "boundary": BOX.boundary(),
    "holes": BOX.without(Disc({"x": 0.0, "y": 2.25}, 0.2), Disc({"y": 2.25, "x": 2.0}, 0.1)),
    "holes at t=0": BOX.without(Disc({"x": 0.0, "y": 2.25}, 0.2)).initial(),
    "rim": BOX.without(Disc({"x": 0.0, "y": 2.25}, 0.2)).rims[0],
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", REGIONS)
def test_points_lie_in_their_region(name, method, dtype):
    region = REGIONS[name]
    points = region.sample(257, generator(), "cpu", dtype, method)
    assert points.dtype == dtype and points.shape[1] == 3
    assert len(points) == 257 or (method == "grid" and 100 < len(points) < 257)
    assert region.contains(points).all()
    assert BOX.contains(points, tolerance=0).all() or name == "rim"
    if name in ("low", "initial"):  # the pinned column is exact
        axis, value = (1, -1.0) if name == "low" else (0, 0.0)
        assert (points[:, axis] == value).all()


@pytest.mark.parametrize("method", METHODS)
def test_the_generator_decides_the_points(method):
    one, two = generator(3), generator(3)
    state = one.get_state()
    first = BOX.sample(64, one, method=method)
    assert torch.equal(first, BOX.sample(64, two, method=method))
    second = BOX.sample(64, one, method=method)
    if method != "grid":
        assert not torch.equal(first, second)
        assert not torch.equal(first, BOX.sample(64, generator(4), method=method))
    one.set_state(state)
    assert torch.equal(first, BOX.sample(64, one, method=method))


def test_latin_hypercube_has_one_point_in_each_slab():
    points = unit_cube(50, 4, generator(), method="lhs", dtype=torch.float64)
    assert torch.equal((points * 50).long().sort(0).values, torch.arange(50)[:, None].expand(50, 4))


@pytest.mark.parametrize("dims", [1, 2, 5, 21])
def test_sobol_is_a_net_and_beats_uniform(dims):
    points = unit_cube(256, dims, generator(), method="sobol", dtype=torch.float64)
    # every one-dimensional projection of a net of 2^8 points has one point in each of 2^8 slabs
    assert torch.equal((points * 256).long().sort(0).values, torch.arange(256)[:, None].expand(256, dims))
    uniform = unit_cube(256, dims, generator(), method="uniform", dtype=torch.float64)
    gain = 0.5 if dims <= 5 else 0.8  # 256 points are few in 21 dimensions
    assert qmc.discrepancy(points.numpy()) < gain * qmc.discrepancy(uniform.numpy())


def test_unscrambled_sobol_numbers_are_those_of_scipy(monkeypatch):
    monkeypatch.setattr(torch, "randint", lambda low, high, size, **_: torch.zeros(size, dtype=torch.int64))
    points = unit_cube(100, 6, None, method="sobol", dtype=torch.float64)
    scipy = qmc.Sobol(6, scramble=False, bits=30).random(128)[:100]
    assert (points - 0.5**31 - torch.as_tensor(scipy)).abs().max() < 1e-15


def test_grid_is_the_tensor_grid():
    points = Box({"x": (0, 1), "y": (0, 2)}).sample(16, method="grid", dtype=torch.float64)
    assert sorted(set(points[:, 0].tolist())) == [0.125, 0.375, 0.625, 0.875]
    assert sorted(set(points[:, 1].tolist())) == [0.25, 0.75, 1.25, 1.75]


def test_union_shares_by_measure():
    assert shares(10, [1.0, 1.0, 2.0]) == [3, 2, 5]
    boundary = Box({"x": (0, 3), "y": (0, 1)}).boundary()
    points = boundary.sample(80)
    assert isinstance(boundary, Union) and boundary.measure == 8
    assert int((points[:, 1] == 0).sum()) == 30 and int((points[:, 0] == 3).sum()) == 10


def test_one_dimensional_face_is_a_point():
    points = Box({"x": (0, 3)}).face("x", "both").sample(4)
    assert points.tolist() == [[0.0], [0.0], [3.0], [3.0]]


def test_pointset_returns_the_given_points():
    given = torch.arange(12, dtype=torch.float64).reshape(6, 2)
    region = PointSet(given, ("x", "y"))
    assert torch.equal(region.sample(10, dtype=torch.float64), given)
    some = region.sample(3, generator())
    assert len(some) == 3 and region.contains(some).all()
    assert not region.contains(torch.tensor([[0.5, 1.0]]))[0]


def test_float32_points_do_not_leave_an_awkward_box():
    box = Box({"x": (-0.1, 0.7)})
    points = box.sample(1 << 16, generator(), method="uniform")
    assert box.contains(points, tolerance=0).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Box({}), "at least one coordinate"),
        (lambda: Box({"x": (1, 0)}), "low < high"),
        (lambda: Box({"x": (0, float("inf"))}), "finite"),
        (lambda: Box({"x": 3}), "two numbers"),
        (lambda: Box({"x": ("a", 1)}), "two numbers"),
        (lambda: BOX.face("z", "low"), "no coordinate 'z'; there are t, x, y"),
        (lambda: BOX.face("x", "left"), "one of low, high, both"),
        (lambda: BOX.slice({"x": 4.0}), "outside"),
        (lambda: BOX.sample(4, method="halton"), "one of uniform, lhs, sobol, grid"),
        (lambda: BOX.sample(-1), ">= 0"),
        (lambda: BOX.sample(4, dtype=torch.int64), "floating-point"),
        (lambda: BOX.contains(torch.zeros(3, 2)), "must be"),
        (lambda: BOX | Box({"x": (0, 1)}), "same coordinates"),
        (lambda: BOX.without(Disc({"x": -1.0, "y": 2.2}, 0.1)), "must lie inside"),
        (lambda: Disc({"x": 0.0, "y": 0.0}, -1.0), "positive"),
        (lambda: PointSet(torch.full((2, 1), float("nan")), ("x",)), "row 0"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_generator_of_another_device_is_refused():
    class Foreign:
        device = torch.device("cuda")

    with pytest.raises(ValueError, match="must live on the points' device cpu"):
        BOX.sample(4, Foreign())
