"""The PDEs of `pinnfuse bench grid`: for us as text, for the others as people write their residuals by hand.

Six of them on two axes are the rows of the paper; all exist on one to three axes but Navier-Stokes, which needs two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor

from pinnfuse import PDE

NU, DT = 0.01, 0.01


@dataclass(frozen=True)
class Derivatives:
    """Of one field: along each axis, and the sum of the second ones."""

    first: Sequence[Tensor]
    laplacian: Tensor


Of = Mapping[str, Tensor]
Residuals = Callable[[Of, Of, Mapping[str, Derivatives]], list[Tensor]]
"""(fields, their differences in time over dt, derivatives by field) -> residuals; all `[B, *space]`."""


@dataclass(frozen=True)
class Equations:
    """One PDE on some axes; `steady` ones have no time."""

    pde: PDE
    by_hand: Residuals
    steady: bool = False


def _poisson(axes: str) -> Equations:
    pde = PDE("u", list(axes), equations={"poisson": f"{_laplacian('u', axes)} - u**3 + 1"})
    return Equations(pde, lambda f, _, d: [d["u"].laplacian - f["u"] ** 3 + 1], steady=True)


def _heat(axes: str) -> Equations:
    pde = _evolving("u", axes, {"heat": f"u_t - nu*({_laplacian('u', axes)})"})
    return Equations(pde, lambda f, rate, d: [rate["u"] - NU * d["u"].laplacian])


def _advection(axes: str) -> Equations:
    slopes = " + ".join(f"{k + 1}*u_{axis}" for k, axis in enumerate(axes))
    pde = _evolving("u", axes, {"advection": f"u_t + {slopes} - nu*({_laplacian('u', axes)})"})

    def by_hand(f: Of, rate: Of, d: Mapping[str, Derivatives]) -> list[Tensor]:
        moved = _sum([(k + 1) * slope for k, slope in enumerate(d["u"].first)])
        return [rate["u"] + moved - NU * d["u"].laplacian]

    return Equations(pde, by_hand)


def _allen_cahn(axes: str) -> Equations:
    pde = _evolving("u", axes, {"allen_cahn": f"u_t - nu*({_laplacian('u', axes)}) - 5*(u - u**3)"})
    return Equations(pde, lambda f, rate, d: [rate["u"] - NU * d["u"].laplacian - 5 * (f["u"] - f["u"] ** 3)])


def _burgers(axes: str) -> Equations:
    fields = "uvw"[: len(axes)]
    pde = _evolving(" ".join(fields), axes, {f"burgers_{f}": _transport(f, fields, axes) for f in fields})

    def by_hand(f: Of, rate: Of, d: Mapping[str, Derivatives]) -> list[Tensor]:
        return [rate[g] + _carried(f, d[g], fields) - NU * d[g].laplacian for g in fields]

    return Equations(pde, by_hand)


def _navier_stokes(axes: str) -> Equations:
    if len(axes) < 2:
        raise ValueError("bench grid: navier_stokes needs two or three axes; take burgers on one.")
    fields = "uvw"[: len(axes)]
    momentum = {f"momentum_{a}": f"{_transport(f, fields, axes)} + p_{a}" for f, a in zip(fields, axes, strict=True)}
    continuity = " + ".join(f"{f}_{a}" for f, a in zip(fields, axes, strict=True))
    pde = _evolving(" ".join(fields + "p"), axes, momentum | {"continuity": continuity})

    def by_hand(f: Of, rate: Of, d: Mapping[str, Derivatives]) -> list[Tensor]:
        found = [
            rate[g] + _carried(f, d[g], fields) + d["p"].first[k] - NU * d[g].laplacian for k, g in enumerate(fields)
        ]
        return [*found, _sum([d[g].first[k] for k, g in enumerate(fields)])]

    return Equations(pde, by_hand)


def _evolving(fields: str, axes: str, equations: dict[str, str]) -> PDE:
    return PDE(fields, ["t", *axes], parameters={"nu": NU}, equations=equations)


def _laplacian(field: str, axes: str) -> str:
    return " + ".join(f"{field}_{axis}{axis}" for axis in axes)


def _transport(field: str, fields: str, axes: str) -> str:
    carried = " + ".join(f"{v}*{field}_{axis}" for v, axis in zip(fields, axes, strict=True))
    return f"{field}_t + {carried} - nu*({_laplacian(field, axes)})"


def _carried(f: Of, of: Derivatives, fields: str) -> Tensor:
    return _sum([f[v] * slope for v, slope in zip(fields, of.first, strict=True)])


def _sum(parts: Sequence[Tensor]) -> Tensor:
    return sum(parts[1:], parts[0])


_MAKERS = {
    "poisson": _poisson,
    "heat": _heat,
    "advection": _advection,
    "allen_cahn": _allen_cahn,
    "burgers": _burgers,
    "navier_stokes": _navier_stokes,
}
SIX = tuple(_MAKERS)


@lru_cache(maxsize=32)
def equations(name: str, dimension: int) -> Equations:
    """One of `SIX` on the first axes of x, y, z."""
    return _MAKERS[name]("xyz"[:dimension])
