"""Transforms along one axis that turn a second difference with its walls into a multiplication.

A difference matrix A along an axis (`axis_stencil(...).matrix`) is written A = V diag(eigenvalues) V^-1. Then
`analyse` applies V^-1 and `synthesise` applies V to a dimension of a tensor:

    periodic                                Fourier, by FFT (in `poisson.py`, for all periodic axes together)
    node-centred Dirichlet, order 2         sine transform DST-I, by FFT of the odd extension; a product with its
                                            matrix up to `FEW` points, where launches cost more than arithmetic
    node-centred Neumann, order 2           cosine transform DCT-I, by FFT of the even extension
    cell-centred Neumann, order 2           cosine transform DCT-II, by FFT of the even extension
    anything else                           eigenvectors of the matrix, computed once in float64, by matrix products;
                                            complex ones for some high-order walls

Source: Strang, The discrete cosine transform, SIAM Review 41 (1999); Lynch, Rice, Thomas, Direct solution of partial
difference equations by tensor product methods, Numer. Math. 6 (1964).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pinnfuse.grid import Dirichlet, Grid, Neumann, axis_stencil
from pinnfuse.grid.stencils import check_points
from pinnfuse.precision import torch_matmul


@dataclass(frozen=True)
class Transform:
    """V and V^-1 of one axis of `n` points.

    Attributes:
        eigenvalues: float64 or complex128 `[n]`, on the CPU.
    """

    n: int
    eigenvalues: Tensor

    def analyse(self, x: Tensor, dim: int) -> Tensor:
        raise NotImplementedError

    def synthesise(self, x: Tensor, dim: int) -> Tensor:
        raise NotImplementedError

    def transposed(self) -> Transform:
        """The transform of the transposed matrix; of a symmetric one itself."""
        return self


FEW = 256


def _times(x: Tensor, matrix: Tensor, dim: int) -> Tensor:
    """matrix @ x along a dimension, in float32 at least: TF32 has too few digits to solve with."""
    with torch_matmul("float32"):
        if dim == -2:
            return matrix @ x
        return (x.movedim(dim, -1) @ matrix.T).movedim(-1, dim)


class Sine(Transform):
    """DST-I: rows -2, 1 next to walls one spacing outside."""

    def __init__(self, n: int, h: float):
        k = torch.arange(1, n + 1, dtype=torch.float64)
        super().__init__(n, -((2 * (math.pi * k / (2 * (n + 1))).sin() / h) ** 2))
        object.__setattr__(self, "matrices", {})

    matrices: dict[tuple[torch.dtype, torch.device], Tensor]

    def _matrix(self, x: Tensor) -> Tensor:
        key = x.dtype, x.device
        if key not in self.matrices:
            k = torch.arange(1, self.n + 1, dtype=torch.float64)
            self.matrices[key] = (math.pi / (self.n + 1) * (k[:, None] * k % (2 * self.n + 2))).sin().to(x)
        return self.matrices[key]

    def analyse(self, x: Tensor, dim: int) -> Tensor:
        if self.n <= FEW:
            return _times(x, self._matrix(x), dim)
        x = x.movedim(dim, -1)
        zero = x.new_zeros(*x.shape[:-1], 1)
        odd = torch.cat([zero, x, zero, -x.flip(-1)], dim=-1)
        return (-0.5 * torch.fft.rfft(odd).imag[..., 1:-1]).movedim(-1, dim)

    def synthesise(self, x: Tensor, dim: int) -> Tensor:
        return self.analyse(x, dim) * (2 / (self.n + 1))


class CellCosine(Transform):
    """DCT-II: mirrored cells outside the walls."""

    def __init__(self, n: int, h: float):
        k = torch.arange(n, dtype=torch.float64)
        super().__init__(n, -((2 * (math.pi * k / (2 * n)).sin() / h) ** 2))

    def _phase(self, x: Tensor) -> Tensor:
        return torch.polar(torch.ones(self.n, dtype=x.dtype, device=x.device), self._angle(x))

    def _angle(self, x: Tensor) -> Tensor:
        return torch.arange(self.n, dtype=x.dtype, device=x.device) * (-math.pi / (2 * self.n))

    def analyse(self, x: Tensor, dim: int) -> Tensor:
        x = x.movedim(dim, -1)
        even = torch.cat([x, x.flip(-1)], dim=-1)
        return (0.5 * (torch.fft.rfft(even)[..., : self.n] * self._phase(x)).real).movedim(-1, dim)

    def synthesise(self, x: Tensor, dim: int) -> Tensor:
        x = x.movedim(dim, -1)
        half = 2 * x * self._phase(x).conj()
        spectrum = torch.cat([half, torch.zeros_like(half[..., :1])], dim=-1)
        return torch.fft.irfft(spectrum, n=2 * self.n)[..., : self.n].movedim(-1, dim)


class NodeCosine(Transform):
    """DCT-I: the wall point mirrors its neighbour, rows -2, 2. With E = diag(1/2, 1, ..., 1/2), E A is symmetric."""

    def __init__(self, n: int, h: float, transpose: bool = False):
        k = torch.arange(n, dtype=torch.float64)
        super().__init__(n, -((2 * (math.pi * k / (2 * (n - 1))).sin() / h) ** 2))
        object.__setattr__(self, "h", h)
        object.__setattr__(self, "transpose", transpose)

    h: float
    transpose: bool

    def transposed(self) -> Transform:
        return NodeCosine(self.n, self.h, not self.transpose)

    def _ends(self, x: Tensor) -> Tensor:
        ends = torch.ones(self.n, dtype=x.dtype, device=x.device)
        ends[0] = ends[-1] = 0.5
        return ends

    def _cosine(self, x: Tensor) -> Tensor:
        return torch.fft.rfft(torch.cat([x, x[..., 1:-1].flip(-1)], dim=-1)).real

    def analyse(self, x: Tensor, dim: int) -> Tensor:
        x = x.movedim(dim, -1)
        return self._cosine(x / self._ends(x) if self.transpose else x).movedim(-1, dim)

    def synthesise(self, x: Tensor, dim: int) -> Tensor:
        x = x.movedim(dim, -1)
        found = self._cosine(x) / (2 * (self.n - 1))
        return (found * self._ends(x) if self.transpose else found).movedim(-1, dim)


class Eigenvectors(Transform):
    """Any matrix that has a basis of eigenvectors."""

    def __init__(self, eigenvalues: Tensor, vectors: Tensor, inverse: Tensor):
        super().__init__(len(eigenvalues), eigenvalues)
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "inverse", inverse)

    vectors: Tensor
    inverse: Tensor

    def transposed(self) -> Transform:
        return Eigenvectors(self.eigenvalues, self.inverse.T, self.vectors.T)

    def analyse(self, x: Tensor, dim: int) -> Tensor:
        return self._apply(self.inverse, x, dim)

    def synthesise(self, x: Tensor, dim: int) -> Tensor:
        return self._apply(self.vectors, x, dim)

    def _apply(self, matrix: Tensor, x: Tensor, dim: int) -> Tensor:
        if matrix.is_complex() and not x.is_complex():
            x = x.to(torch.promote_types(x.dtype, torch.complex64))
        return _times(x, matrix.to(x), dim)


def axis_transform(grid: Grid, axis: str, n: int) -> Transform:
    """The transform of the second difference along an axis with walls.

    Raises:
        ValueError: too few points, or a matrix without a basis of eigenvectors.
    """
    low, high = grid.sides[axis]
    h = grid.spacing[grid.index(axis)]
    stencil = axis_stencil(grid, axis, 2)
    check_points(stencil, n, axis, "poisson_solve", "rhs")
    if grid.order == 2 and type(low) is type(high):
        if isinstance(low, Dirichlet) and grid.centring == "node":
            return Sine(n, h)
        if isinstance(low, Neumann):
            return CellCosine(n, h) if grid.centring == "cell" else NodeCosine(n, h)
    matrix, _ = stencil.matrix(n)
    values, vectors = torch.linalg.eig(matrix)
    scale = float(values.abs().max())
    if float(torch.linalg.cond(vectors)) > 1e8:
        raise ValueError(
            f"poisson_solve: the second difference along {axis!r} (order {grid.order}, {low}, {high}) has no basis of "
            "eigenvectors to solve with. Use order 2, or walls that are Dirichlet or Neumann."
        )
    values[values.abs() < 1e-12 * scale] = 0.0  # the constant, where no wall fixes the level
    if float(values.imag.abs().max()) < 1e-12 * scale:
        values, vectors = values.real.clone(), vectors.real.contiguous()
    return Eigenvectors(values, vectors, torch.linalg.inv(vectors))
