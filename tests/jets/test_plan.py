"""Values of the coefficients that a plan gives to its operator channels."""

from pinnfuse import PDE
from pinnfuse.jets.plan import plan


def test_coefficients_follow_the_constants_and_are_computed_once() -> None:
    pde = PDE("u", "t x", parameters={"nu": 0.01}, equations={"heat": "u_t - nu*u_xx"})
    heat = plan(pde)
    (first,) = heat.coefficients({"nu": 0.01})
    assert abs(first) in (0.01, 100.0)
    assert heat.coefficients({"nu": 0.01}) is heat.coefficients({"nu": 0.01})
    (second,) = heat.coefficients({"nu": 0.04})
    assert second / first in (4.0, 0.25)
    assert heat.coefficients({"nu": 0.01}) == [first]
