"""The update of the dense inverse Hessian against the formulas written out, and their properties."""

import math

import pytest
import torch

from pinnfuse.optimizers import BFGS, SSBFGS, SSBroyden
from pinnfuse.optimizers.self_scaled import _eigen, _ssbroyden
from tests.optimizers.objectives import closure_of, sine_network

DENSE = [BFGS, SSBFGS, SSBroyden]


def written_out(cls, H, s, y, bs):
    """The update of the module's docstring, with matrices and no shortcut; bs = B s."""
    ys, w = y @ s, H @ y
    yw = y @ w
    b, h = (s @ bs / ys).item(), (yw / ys).item()
    tau, phi = 1.0, 1.0
    if cls is SSBFGS:
        tau = min(1.0, 1 / b)
    if cls is SSBroyden:
        a = b * h - 1
        c = math.sqrt(a / (a + 1))
        rho = min(1.0, h * (1 - c))
        theta = max((rho - 1) / a, min(1 / rho, (1 - b) / b))
        phi = (1 - theta) / (1 + a * theta)
        volume = (1 + a * theta) ** (-1 / (len(s) - 1))
        tau = min(1.0, 1 / b)
        tau = tau * min(volume, 1 / theta) if theta > 0 else min(tau * volume, 1 + a * theta)
    v = yw.sqrt() * (s / ys - w / yw)
    return (H - torch.outer(w, w) / yw + phi * torch.outer(v, v)) / tau + torch.outer(s, s) / ys


def random_pair(n, seed):
    """H, s, y with y.s > 0 and B s, of very different sizes."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(n, n, generator=generator, dtype=torch.float64)
    H = root @ root.T + 0.1 * torch.eye(n, dtype=torch.float64)
    H = 0.5 * (H + H.T)  # to the last bit
    s = torch.randn(n, generator=generator, dtype=torch.float64)
    hessian = torch.randn(n, n, generator=generator, dtype=torch.float64)
    y = (hessian @ hessian.T) @ s * 10.0 ** torch.randint(-3, 4, (), generator=generator)
    return H, s, y, torch.linalg.solve(H, s)


def update(cls, H, s, y, bs):
    optimizer = cls([torch.nn.Parameter(torch.zeros_like(s))])
    optimizer._memory.update(inverse_hessian=H.clone(), scale=1.0)
    optimizer._update(s, y, (y @ s).item(), (s @ s).item(), (s @ bs).item())
    return optimizer._memory["inverse_hessian"]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("cls", DENSE)
def test_update_is_the_published_formula(cls, seed):
    H, s, y, bs = random_pair(7, seed)
    expected = written_out(cls, H, s, y, bs)
    torch.testing.assert_close(update(cls, H, s, y, bs), expected, rtol=1e-9, atol=1e-11 * expected.abs().max().item())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("cls", DENSE)
def test_update_keeps_secant_symmetry_and_definiteness(cls, seed):
    H, s, y, bs = random_pair(9, seed)
    new = update(cls, H, s, y, bs)
    # cancellation: H y is a sum of terms of size |H| |y|, each rounded
    torch.testing.assert_close(new @ y, s, rtol=0, atol=(1e-14 * new.norm() * y.norm()).item())
    assert (new - new.T).abs().max() <= 1e-15 * new.abs().max()
    assert torch.linalg.eigvalsh(new).min() > 0


def test_asymmetry_does_not_grow_over_a_run():
    """Rounding makes H_ij and H_ji differ; 600 updates leave that at the rounding level."""
    net, loss = sine_network()
    optimizer = SSBroyden(net.parameters(), check_objective=False)
    for _ in range(600):
        optimizer.step(closure_of(optimizer, loss))
    inverse = optimizer._memory["inverse_hessian"]
    assert (inverse - inverse.T).norm() <= 1e-13 * inverse.norm()


def test_bfgs_is_the_product_form():
    H, s, y, bs = random_pair(6, 3)
    project = torch.eye(6, dtype=torch.float64) - torch.outer(s, y) / (y @ s)
    expected = project @ H @ project.T + torch.outer(s, s) / (y @ s)
    torch.testing.assert_close(update(BFGS, H, s, y, bs), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("b", [1e-8, 1e-3, 0.5, 1.0, 2.0, 1e4, 1e9])
@pytest.mark.parametrize("excess", [1e-12, 1e-3, 1.0, 1e6, 1e14])
@pytest.mark.parametrize("n", [1, 2, 1000])
def test_ssbroyden_coefficients_keep_the_update_definite(b, excess, n):
    """sigma = 1 + a theta > 0 is definiteness (Al-Baali); tau never shrinks H."""
    h = (1 + excess) / b
    tau, phi = _ssbroyden(b, h, n)
    assert math.isfinite(phi) and 0 < tau <= 1
    a = b * h - 1
    if a > 0:
        theta = (1 - phi) / (1 + a * phi)  # the map between both parameters is its own inverse
        assert 1 + a * theta > 0


@pytest.mark.parametrize(
    "tau, phi, h", [(1.0, 1.0, 2.0), (0.3, 1.0, 1e9), (0.7, -0.4, 3.0), (1.0, 0.0, 5.0), (0.2, 0.5, 1e-9)]
)
def test_eigenvalues_of_the_two_by_two_matrix(tau, phi, h):
    c, d, (first, second) = _eigen(tau, phi, h)
    m = torch.tensor([[1 + phi * h / tau, -phi * math.sqrt(h) / tau], [-phi * math.sqrt(h) / tau, (phi - 1) / tau]])
    vectors = torch.tensor([[c, -d], [d, c]])
    torch.testing.assert_close(vectors @ torch.diag(torch.tensor([first, second])) @ vectors.T, m, rtol=1e-5, atol=1e-6)
