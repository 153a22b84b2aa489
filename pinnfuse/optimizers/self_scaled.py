r"""BFGS, SSBFGS and SSBroyden with a dense inverse Hessian.

With s = x_new - x, y = g_new - g and w = H y, every member of the self-scaled Broyden family updates

    H_new = (H - w w^T / (y.w) + phi v v^T) / tau + s s^T / (y.s),      v = sqrt(y.w) (s / (y.s) - w / (y.w)).

phi = 1 is BFGS, phi = 0 is DFP; tau < 1 enlarges H where the curvature it predicts along s is too large. In terms of

    b = s.B s / (y.s)   (B = H^-1),      h = y.w / (y.s),      a = b h - 1 >= 0     (Cauchy-Schwarz)

BFGS takes tau = 1; SSBFGS tau = min(1, 1/b); SSBroyden chooses both (see `_ssbroyden`).

The same update as one rank-two change. With the unit-free vectors u = s / sqrt(y.s) and q = w / sqrt(y.w),

    H_new = H / tau + [u q] M [u q]^T,     M = [[1 + phi h / tau, -phi sqrt(h) / tau], [., (phi - 1) / tau]],

and with the eigenvectors of the 2 x 2 matrix M that is l1 z1 z1^T + l2 z2 z2^T: two symmetric rank-one additions in
place. One step costs two products H v and these two passes over H.

Sources: Nocedal and Wright, Numerical Optimization (2nd ed., 2006), ch. 6; Al-Baali, Numerical experience with a class
of self-scaling quasi-Newton algorithms, JOTA 96 (1998); Al-Baali and Khalfan, Wide interval for efficient self-scaling
quasi-Newton algorithms, Optim. Methods Softw. 20 (2005); for PINNs Urban, Stefanou and Pons, J. Comput. Phys. 523
(2025) 113656, and Kiyani et al., Comput. Methods Appl. Mech. Eng. 446 (2025) 118308.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from pinnfuse import parallel
from pinnfuse.optimizers.quasi_newton import QuasiNewton


class SelfScaledQuasiNewton(QuasiNewton):
    """Base of the dense family: H is [n, n] float64 on the parameters' device, 8 n^2 bytes (0.8 GB at n = 10,000).

    Args:
        max_parameters: refuse more, before the memory runs out. Raise it where 8 n^2 bytes are at hand.
        others: see `QuasiNewton`.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1.0, *, max_parameters: int = 20_000, **options: Any):
        super().__init__(params, lr, **options)
        n = sum(p.numel() for p in self._params)
        if n > max_parameters:
            raise ValueError(
                f"{type(self).__name__}: {n} parameters need an inverse Hessian of {8e-9 * n * n:.1f} GB, more than "
                f"`max_parameters` = {max_parameters} allows. Raise it, use a smaller network, or use 'lbfgs'."
            )

    @staticmethod
    def _coefficients(b: float, h: float, n: int) -> tuple[float, float]:
        """(tau, phi) from b and h."""
        raise NotImplementedError

    def _direction(self, gradient: Tensor) -> Tensor:
        inverse = self._memory.get("inverse_hessian")
        return gradient * -self._memory["scale"] if inverse is None else (inverse @ gradient).neg_()

    def _update(self, s: Tensor, y: Tensor, ys: float, ss: float, sBs: float) -> None:
        memory = self._memory
        if memory.get("inverse_hessian") is None:
            # the first pair sets the size of H: the eigenvalue y.s / y.y, Nocedal and Wright (6.20)
            memory["inverse_hessian"] = torch.diag(torch.full_like(s, memory["scale"]))
            sBs = ss / memory["scale"]
        inverse = memory["inverse_hessian"]
        w = inverse @ y
        (yw,) = parallel.agreed(y @ w)
        if not 0 < yw < math.inf:
            return
        b, h = sBs / ys, yw / ys
        tau, phi = self._coefficients(b, h, len(s)) if b * h > 1 else (1.0, 1.0)
        c, d, (first, second) = _eigen(tau, phi, h)
        u, q = s / math.sqrt(ys), w / math.sqrt(yw)
        z1, z2 = c * u + d * q, c * q - d * u
        inverse.addr_(z1, z1, beta=1 / tau, alpha=first).addr_(z2, z2, alpha=second)

    def _forget(self) -> None:
        self._memory["inverse_hessian"] = None


class BFGS(SelfScaledQuasiNewton):
    """BFGS with a dense inverse Hessian and a strong Wolfe line search. Options: `SelfScaledQuasiNewton`."""

    @staticmethod
    def _coefficients(b: float, h: float, n: int) -> tuple[float, float]:
        return 1.0, 1.0


class SSBFGS(SelfScaledQuasiNewton):
    """BFGS that first divides H by tau = min(1, 1/b) (Al-Baali 1998). Options: `SelfScaledQuasiNewton`."""

    @staticmethod
    def _coefficients(b: float, h: float, n: int) -> tuple[float, float]:
        return min(1.0, 1 / b), 1.0


class SSBroyden(SelfScaledQuasiNewton):
    """Self-scaled Broyden with adaptive tau and phi (Al-Baali and Khalfan 2005). Options: `SelfScaledQuasiNewton`."""

    @staticmethod
    def _coefficients(b: float, h: float, n: int) -> tuple[float, float]:
        return _ssbroyden(b, h, n)


def _ssbroyden(b: float, h: float, n: int) -> tuple[float, float]:
    """(tau, phi) of SSBroyden, for a = b h - 1 > 0.

    theta, the Broyden parameter of the direct update, is (1 - b) / b kept between theta- = (rho - 1) / a and
    theta+ = 1 / rho, where rho = min(1, h (1 - c)) and c = sqrt(a / (1 + a)). Then phi = (1 - theta) / (1 + a theta);
    tau = min(1, 1/b) times min(sigma^(-1/(n-1)), 1/theta) for theta > 0, else min(tau sigma^(-1/(n-1)), sigma), with
    sigma = 1 + a theta.

    h (1 - c) = 1 / (b (1 + c)), the form used, does not cancel for large a.
    """
    a = b * h - 1
    rho = min(1.0, 1 / (b * (1 + math.sqrt(a / (1 + a)))))
    theta = max((rho - 1) / a, min(1 / rho, (1 - b) / b))
    sigma = 1 + a * theta
    volume = sigma ** (-1 / max(n - 1, 1))
    tau = min(1.0, 1 / b)
    tau = tau * min(volume, 1 / theta) if theta > 0 else min(tau * volume, sigma)
    return tau, (1 - theta) / sigma


def _eigen(tau: float, phi: float, h: float) -> tuple[float, float, tuple[float, float]]:
    """Eigenvectors (c, d), (-d, c) and their eigenvalues of M (see the top of the file).

    The smaller eigenvalue comes from the determinant, which loses no digits where h is large.
    """
    m11, m12, m22 = 1 + phi * h / tau, -phi * math.sqrt(h) / tau, (phi - 1) / tau
    angle = 0.5 * math.atan2(2 * m12, m11 - m22)
    mean, radius = 0.5 * (m11 + m22), math.hypot(0.5 * (m11 - m22), m12)
    determinant = ((phi - 1) - phi * h / tau) / tau
    large = mean + math.copysign(radius, mean)
    small = determinant / large if large else 0.0
    # atan2's angle belongs to the algebraically larger eigenvalue
    return math.cos(angle), math.sin(angle), (large, small) if mean >= 0 else (small, large)
