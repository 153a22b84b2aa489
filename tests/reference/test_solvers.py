"""The solvers against themselves at other resolutions, and against independent files where these are at hand.

The README of the collected files states how far each is from the true solution; bounds below follow it.
"""

import numpy as np
import pytest

from pinnfuse.reference import CavityReference, PeriodicReference, allen_cahn, cole_hopf, kdv, schrodinger
from pinnfuse.reference.base import tensor_points


def rel_l2(a, b):
    keep = np.isfinite(a) & np.isfinite(b)
    return np.linalg.norm((a - b)[keep]) / np.linalg.norm(b[keep])


def on(reference, t, x):
    """[len(t), len(x), fields]"""
    return reference.solution(tensor_points({"t": t, "x": x})).reshape(len(t), len(x), -1)


def test_burgers_is_odd_periodic_and_starts_right():
    x = np.linspace(-1, 1, 51)
    nu = 0.01 / np.pi
    assert np.abs(cole_hopf(np.zeros(51), x, nu) + np.sin(np.pi * x)).max() < 1e-14
    late = cole_hopf(np.full(51, 0.8), x, nu)
    assert np.abs(late + late[::-1]).max() < 1e-13 and np.abs(late[[0, 25, 50]]).max() < 1e-13


def test_burgers_agrees_with_the_files(shared):
    exact = shared("burgers/burgers_exact_recomputed.npz")
    points = tensor_points({"t": exact["t"], "x": exact["x"]})
    u = cole_hopf(points[:, 0], points[:, 1], 0.01 / np.pi).reshape(exact["u"].shape)
    assert np.abs(u - exact["u"]).max() < 1e-12
    raissi = shared("burgers/burgers_shock.mat")
    points = tensor_points({"t": raissi["t"], "x": raissi["x"]})
    u = cole_hopf(points[:, 0], points[:, 1], 0.01 / np.pi).reshape(100, 256)
    assert rel_l2(u, raissi["usol"].T) < 5e-12  # floor 2.9e-12


@pytest.mark.parametrize("d", [0.0025, 0.022**2], ids=["0.0025", "0.022^2"])
def test_kdv_converges_and_conserves(d):
    from pinnfuse.reference.kdv import solve

    reference = kdv(d)
    other = PeriodicReference(("u",), -1.0, 2.0, 1.0, lambda: solve(d, 1.0, 640, 1e-4, 240))
    rng = np.random.default_rng(0)
    points = np.stack([rng.uniform(0, 1, 500), rng.uniform(-1, 1, 500)], 1)
    # an error of order 4 in time: the coarse run is 16 times worse than the reference
    assert np.abs(reference.solution(points) - other.solution(points)).max() < 1.6e-8
    # the highest modes kept are rounding, so the spatial error is, too
    c = reference.coefficients[:, 0]
    assert np.abs(c[:, 250:]).max() < 1e-15
    energy = (np.abs(c[:, 1:]) ** 2).sum(1)
    assert np.abs(energy / energy[0] - 1).max() < 1e-9


@pytest.mark.parametrize(("d", "file", "floor"), [(0.0025, "KdV.mat", 6.6e-12), (0.022**2, "jaxpi2/kdv.mat", 1.9e-11)])
def test_kdv_agrees_with_the_files(shared, d, file, floor):
    data = shared(f"kdv/{file}")
    t, u = (data["tt"], data["uu"].T) if "tt" in data else (data["t"], data["usol"])
    assert rel_l2(on(kdv(d), t, data["x"])[..., 0], u) < 2 * floor


def test_allen_cahn_converges():
    """Relative L2 of the reference about 1e-10, at the kink and t = 0.005 about 1e-8."""
    from pinnfuse.reference.allen_cahn import kink, solve

    def at(points, max_step, times):
        coefficients = solve(1e-4, 5.0, 1.0, points, max_step, times)
        return PeriodicReference(
            ("u",), -1.0, 2.0, 1.0, lambda: coefficients, grading=2, extra=lambda t, x: kink(t, x, 1e-4)[:, None]
        )

    t, x = np.linspace(0, 1, 101), np.linspace(-1, 1, 201)
    fine = on(allen_cahn(), t, x)
    half = on(at(2048, 4e-3, 96), t, x)
    difference = np.abs(fine - half)
    # 16 times in the steps and 8 times or more in the modes lie between this and the reference's own error
    assert rel_l2(half, fine) < 1e-8
    assert difference[:, np.abs(x) < 0.99].max() < 1e-7
    assert difference[0].max() < 1e-9 and difference[50:].max() < 1e-8


def test_allen_cahn_kink_is_its_own_series():
    from pinnfuse.reference.allen_cahn import kink

    x, k = np.linspace(-1, 1, 21), np.arange(1, 3000)[:, None]
    for t in (0.02, 1.0):
        series = 4 * (-1.0) ** k / (np.pi * k) ** 2 * np.cos(np.pi * k * x) * np.exp(-1e-4 * (np.pi * k) ** 2 * t)
        assert np.abs(kink(np.full(1, t), x, 1e-4) + 1 / 3 + series.sum(0)).max() < 1e-13


def test_allen_cahn_agrees_with_the_files(shared):
    ours = allen_cahn()
    best = shared("allen_cahn/allen_cahn_recomputed.npz")
    t = np.linspace(0, 1, 201)
    u = on(ours, t, best["x_jaxpi"])[..., 0]
    assert rel_l2(u, best["u_jaxpi_grid"]) < 4e-8  # its self-convergence
    raissi = shared("allen_cahn/AC.mat")
    away = np.abs(raissi["x"]) <= 0.99
    u = on(ours, t, raissi["x"])[..., 0]
    assert rel_l2(u[:, away], raissi["uu"].T[:, away]) < 1e-6  # floor 5e-7
    assert 0.8e-5 < rel_l2(u, raissi["uu"].T) < 1.6e-5  # the file's smoothed start, floor 1.2e-5


def test_schrodinger_conserves_and_converges():
    from pinnfuse.reference.schrodinger import frame, solve

    ours = schrodinger(15.0)
    mass = (np.abs(ours.coefficients[:, 0]) ** 2 * np.where(np.arange(1025) % 1024, 2, 1)).sum(1)
    assert np.abs(mass / mass[0] - 1).max() < 1e-9
    end = np.pi / 2
    coarse = PeriodicReference(
        ("u", "v"), -15.0, 30.0, end, lambda: solve(15.0, end, 1024, 4e-4, 600), frame=frame(15.0, 1024)
    )
    rng = np.random.default_rng(1)
    points = np.stack([rng.uniform(0, end, 300), rng.uniform(-15, 15, 300)], 1)
    assert rel_l2(coarse.solution(points), ours.solution(points)) < 2e-8
    # two solitons: |h| has its peak of 4 at t = pi / 4, and 2 sech(x) returns at pi / 2
    u, v = ours.solution([[np.pi / 4, 0.0]])[0]
    assert abs(np.hypot(u, v) - 4) < 1e-8
    u, v = ours.solution([[end, 0.5]])[0]
    assert abs(np.hypot(u, v) - 2 / np.cosh(0.5)) < 1e-8


def test_schrodinger_with_a_kink_converges_slowly():
    """Half the modes are 2.8 times worse (modes^-1.5), so this difference is 1.8 times the reference's own error."""
    from pinnfuse.reference.schrodinger import frame, solve

    end = np.pi / 2
    half = PeriodicReference(
        ("u", "v"), -5.0, 10.0, end, lambda: solve(5.0, end, 1024, 4e-4, 800), frame=frame(5.0, 1024)
    )
    rng = np.random.default_rng(2)
    points = np.stack([rng.uniform(0, end, 500), rng.uniform(-5, 5, 500)], 1)
    assert rel_l2(half.solution(points), schrodinger(5.0).solution(points)) < 5e-6


@pytest.mark.parametrize(
    ("half_length", "file", "floor"), [(5.0, "NLS.mat", 1.7e-5), (15.0, "urban_x15/NLS.mat", 4e-9)], ids=["5", "15"]
)
def test_schrodinger_agrees_with_the_files(shared, half_length, file, floor):
    data = shared(f"nls/{file}")
    t, h = (data["tt"], data["uu"].T) if "tt" in data else (data["t"], data["usol"].T)
    fields = on(schrodinger(half_length), t, data["x"])
    assert rel_l2(fields[..., 0] + 1j * fields[..., 1], h) < 1.3 * floor


def test_cavity_converges():
    """Twice over: the difference between two resolutions falls, and is 1e-5 where the reference is 1e-6."""
    x = np.linspace(0, 1, 33)
    points = tensor_points({"x": x, "y": x})
    fine, middle, coarse = (CavityReference(100.0, n=n).solution(points)[:, :2] for n in (None, 36, 26))
    assert rel_l2(middle, fine) < 2e-5
    assert rel_l2(coarse, fine) > 4 * rel_l2(middle, fine)
    near = np.minimum(np.hypot(points[:, 0], 1 - points[:, 1]), np.hypot(1 - points[:, 0], 1 - points[:, 1])) < 0.04
    assert np.array_equal(np.isnan(fine[:, 0]), near) and near.any()


@pytest.mark.parametrize(("reynolds", "bound"), [(100, 5e-6), (400, 1e-5), (1000, 4e-5)])
def test_cavity_agrees_with_the_files(shared, reynolds, bound):
    data = shared(f"lid_driven_cavity/ldc_Re{reynolds}_recomputed.npz")
    ours = CavityReference(reynolds)
    points = tensor_points({"x": data["x"], "y": data["y"]})
    keep = np.minimum(np.hypot(points[:, 0], 1 - points[:, 1]), np.hypot(1 - points[:, 0], 1 - points[:, 1])) > 0.04
    psi = ours.stream(*points[keep].T, 1)
    velocity = np.stack([psi[0, 1], -psi[1, 0]])
    assert rel_l2(velocity, np.stack([data["u"].ravel()[keep], data["v"].ravel()[keep]])) < bound


def test_cavity_pressure_gradient_closes_around_a_loop():
    """The pressure is an integral of its gradient: the integral around any loop must vanish."""
    ours = CavityReference(100.0)
    z, w = np.polynomial.legendre.leggauss(40)
    z, w = (z + 1) / 2, w / 2
    corners = np.array([[0.1, 0.2], [0.8, 0.2], [0.8, 0.85], [0.1, 0.85], [0.1, 0.2]])
    total, size = 0.0, 0.0
    for a, b in zip(corners[:-1], corners[1:], strict=True):
        path = a + z[:, None] * (b - a)
        gradient = np.stack(ours.pressure_gradient(*path.T), 1) @ (b - a)
        total, size = total + w @ gradient, size + w @ np.abs(gradient)
    assert abs(total) < 1e-5 * size
