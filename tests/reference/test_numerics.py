import numpy as np
import pytest

from pinnfuse.reference import ClosedForm, Scattered, chebyshev, poisson
from pinnfuse.reference.corner import blended, corner_functions
from pinnfuse.reference.etdrk4 import integrate, phi


def test_chebyshev_differentiates_to_rounding():
    x = chebyshev.nodes(40)
    f = np.exp(np.sin(2 * x))
    exact = {1: 2 * np.cos(2 * x) * f, 2: (4 * np.cos(2 * x) ** 2 - 4 * np.sin(2 * x)) * f}
    for order, truth in exact.items():
        assert np.abs(chebyshev.differentiation(40, order) @ f - truth).max() < 1e-10  # eps n^(2 order) / 10


def test_chebyshev_interpolates_and_meets_nodes():
    x = np.concatenate([np.linspace(-1, 1, 33), chebyshev.nodes(30)])
    matrix = chebyshev.interpolation(30, x)
    assert np.abs(matrix @ np.cos(3 * chebyshev.nodes(30)) - np.cos(3 * x)).max() < 1e-14
    assert np.array_equal(matrix[33:], np.eye(31))


def test_local_weights_are_exact_for_polynomials():
    offset = np.array([3.0, 3.25, 3.999])
    j = np.arange(8.0)
    weights = chebyshev.local_weights(offset, 8)
    for power in range(8):
        assert np.abs(weights @ j**power - offset**power).max() < 1e-12 * 7.0**power


def test_phi_agrees_with_mpmath_on_both_branches():
    mpmath = pytest.importorskip("mpmath")
    z = np.array([1e-12, 0.3 + 0.2j, 0.999, 1.001j, -5.0, 30j, -700.0])
    for k, values in enumerate(phi(z.astype(complex)), start=1):
        for zi, value in zip(z, values, strict=True):
            # exp(z) minus its first k terms, over z^k, with digits to spare
            with mpmath.workdps(80):
                zm = mpmath.mpc(zi)
                exact = (mpmath.exp(zm) - sum(zm**j / mpmath.factorial(j) for j in range(k))) / zm**k
            assert abs(value - complex(exact)) < 1e-14 * max(1.0, abs(complex(exact)))


def test_etdrk4_converges_with_order_four():
    # u' = -u + u^2, u(0) = 1/2: u = 1 / (1 + exp(t))
    times = np.array([0.0, 0.7, 1.0])
    errors = []
    for h in (0.1, 0.05, 0.025):
        u = integrate(np.array([-1.0 + 0j]), lambda u, t: u**2, np.array([0.5 + 0j]), times, h)[:, 0]
        errors.append(np.abs(u - 1 / (1 + np.exp(times))).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (np.abs(orders - 4) < 0.3).all(), orders


def test_corner_flow_solves_its_equations():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.01, 1, (2, 100))
    f = {key: g(x, y) for key, g in corner_functions().items()}
    one, two = ({key: pair[k] for key, pair in f.items()} for k in (0, 1))
    r = np.hypot(x, y)
    biharmonic = [g[4, 0] + 2 * g[2, 2] + g[0, 4] for g in (one, two)]
    convection = one[0, 1] * (one[3, 0] + one[1, 2]) - one[1, 0] * (one[2, 1] + one[0, 3])
    assert np.abs(biharmonic[0] * r**3).max() < 1e-12
    assert np.abs((biharmonic[1] + convection) * r**2).max() < 1e-12
    assert np.abs(convection * r**2).max() > 1e-2
    s, zero = np.linspace(0.1, 1, 10), np.zeros(10)
    for key, lid in (((0, 0), 0.0), ((1, 0), 0.0), ((0, 1), -1.0)):
        g = corner_functions()[key]
        for a, b, expected in ((s, zero, lid), (zero, s, 0.0)):  # lid, wall
            first, second = g(a, b)
            assert np.abs(first - expected).max() < 1e-14 and np.abs(second).max() < 1e-14


@pytest.mark.parametrize("reynolds", [0.0, 100.0])
def test_blended_corner_flow_meets_the_boundary_conditions(reynolds):
    s, zero = np.linspace(0.05, 0.95, 19), np.zeros(19)
    for x, y, speed in ((s, zero, 0), (s, zero + 1, 1), (zero, s, 0), (zero + 1, s, 0)):
        table = blended(x, y, reynolds, 1)
        assert np.abs(table[0, 0]).max() < 1e-12
        assert np.abs(table[1, 0]).max() < 1e-12 and np.abs(table[0, 1] - speed).max() < 1e-12


def test_poisson_recovers_a_smooth_solution():
    reference = poisson(
        lambda x, y: 5 * np.pi**2 * np.sin(np.pi * x) * np.sin(2 * np.pi * y),
        {"x": np.linspace(0, 1, 9), "y": [0.3, 0.7]},
    )
    u = reference.on_grid()["u"]
    exact = np.sin(np.pi * np.linspace(0, 1, 9))[:, None] * np.sin(2 * np.pi * np.array([0.3, 0.7]))
    assert u.shape == (9, 2) and np.abs(u - exact).max() < 1e-11


def test_closed_form_follows_the_order_of_its_coordinates():
    reference = ClosedForm({"u": "t + 10*x", "v": "3"}, {"t": [0, 1], "x": [0, 1, 2]})
    assert reference.solution([[1.0, 2.0]]).tolist() == [[21.0, 3.0]]
    assert reference.on_grid()["u"].tolist() == [[0, 10, 20], [1, 11, 21]]
    points, values = reference.evaluation()
    assert np.array_equal(reference.solution(points), values)
    with pytest.raises(ValueError, match=r"columns t, x; got shape \(2,\)"):
        reference.solution([1.0, 2.0])


def test_scattered_interpolates_linearly_and_knows_its_hull():
    rng = np.random.default_rng(0)
    points = rng.random((200, 2)) * [100.0, 1e-3]
    reference = Scattered(("u", "p"), ("x", "y"), points, np.stack([points @ [1, 2e3], points[:, 0]], 1), (5, 1))
    inside = np.array([[50.0, 5e-4]])
    assert np.allclose(reference.solution(inside), [[51.0, 50.0]])
    assert np.isnan(reference.solution([[200.0, 0.0]])).all()
    assert reference.grid()["y"].shape == (1,) and reference.evaluation()[0] is reference.points
