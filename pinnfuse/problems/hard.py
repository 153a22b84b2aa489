r"""Text for output transforms that make conditions exact: a lift that meets them, plus a factor times the network.

    u = G(x) + phi(x) N(x)

phi vanishes, to the first or second order, where the condition holds: with phi = 0 the value is G, with phi = phi_n = 0
the normal derivative is G_n as well. So a Dirichlet condition needs order 1, a value with its normal derivative (an
initial value with its rate, a clamped edge) order 2.

A zero normal derivative with a free value comes from the inputs: a network of x' = `reflected(box, "x")`, which is flat
at both walls, has u_x = N_x' x'_x = 0 there, and still represents every smooth field that mirrors at the walls. For a
normal derivative that is not zero, add a lift that has it.

Source: Sukumar and Srivastava, Comput. Methods Appl. Mech. Eng. 389 (2022) 114333.
"""

from __future__ import annotations

from collections.abc import Mapping

from pinnfuse.domains import Box
from pinnfuse.errors import nearest


def distance(box: Box, faces: Mapping[str, str], order: int = 1) -> str:
    """phi: zero to the given order on faces of a box, of size one inside, smooth everywhere.

    Args:
        box: the domain.
        faces: {coordinate: "low", "high" or "both"}.
        order: 1, or 2 where the derivative vanishes too.

    >>> distance(Box({"t": (0, 1), "x": (-1, 1)}), {"t": "low", "x": "both"})
    '(t - 0.0)/1.0 * 4*(x - -1.0)*(1.0 - x)/4.0'

    Raises:
        ValueError: an unknown coordinate or side, no face, or another order.
    """
    if order not in (1, 2) or not faces:
        raise ValueError(f"distance: expected at least one face and `order` 1 or 2; got {dict(faces)!r}, {order!r}.")
    factors = []
    for name, side in faces.items():
        if name not in box.bounds:
            raise ValueError(f"distance: no coordinate {name!r}. {nearest(name, box.bounds)}")
        low, high = box.bounds[name]
        length = high - low
        forms = {
            "low": f"({name} - {low!r})/{length!r}",
            "high": f"({high!r} - {name})/{length!r}",
            "both": f"4*({name} - {low!r})*({high!r} - {name})/{length**2!r}",
        }
        if side not in forms:
            raise ValueError(f"distance: unknown side {side!r} of {name!r}. {nearest(side, forms)}")
        factors.append(forms[side])
    product = " * ".join(factors)
    return product if order == 1 else f"({product})**2"


def dirichlet_transform(field: str, lift: str, box: Box, faces: Mapping[str, str], order: int = 1) -> dict[str, str]:
    """{field: text} for `Problem.hard`: the field is the lift on the faces, exactly.

    Args:
        field: name of the field.
        lift: text in the coordinates that takes the prescribed values on the faces (and slopes, for order 2).
        box, faces, order: see `distance`.
    """
    return {field: f"({lift}) + {distance(box, faces, order)}*{field}"}


def reflected(box: Box, coordinate: str) -> str:
    """Text of the coordinate mapped to itself with slope zero at both walls, for `Problem.inputs`.

    x' = a + (b - a) (1 - cos(pi (x - a) / (b - a))) / 2
    """
    if coordinate not in box.bounds:
        raise ValueError(f"reflected: no coordinate {coordinate!r}. {nearest(coordinate, box.bounds)}")
    low, high = box.bounds[coordinate]
    length = high - low
    return f"{low!r} + {length!r}*(1 - cos(pi*({coordinate} - {low!r})/{length!r}))/2"
