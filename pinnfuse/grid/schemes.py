r"""Time schemes of residuals: which levels a residual reads, and at which of them the equation is formed.

With levels u^n, u^{n+1}, ... one step dt apart, an equation R(u_t, u, t) = 0 becomes

    forward_euler    R( (u^{n+1} - u^n) / dt,                        u^n,                   t_n )            order 1
    backward_euler   R( (u^{n+1} - u^n) / dt,                        u^{n+1},               t_{n+1} )        order 1
    crank_nicolson   the mean of both above                                                                  order 2
    midpoint         R( (u^{n+1} - u^n) / dt,                        (u^n + u^{n+1}) / 2,   t_n + dt / 2 )   order 2
    central          R( (u^{n+2} - u^n) / 2 dt,                      u^{n+1},               t_{n+1} )        order 2
    bdf2             R( (3 u^{n+2} - 4 u^{n+1} + u^n) / 2 dt,        u^{n+2},               t_{n+2} )        order 2

and `central` has the second derivative (u^{n+2} - 2 u^{n+1} + u^n) / dt^2 as well. An equation without a time
derivative (continuity) is formed at the same time as the others.

Source: Hairer, Noersett, Wanner, Solving Ordinary Differential Equations I (Springer, 1993), ch. II and III.
"""

from __future__ import annotations

from dataclasses import dataclass

Levels = tuple[tuple[int, float], ...]
"""(level, coefficient) pairs of a combination of time levels."""


@dataclass(frozen=True)
class Stage:
    """One evaluation of the equation: its share of the residual, the values it reads, its time in steps after u^n."""

    weight: float
    values: Levels
    time: float


@dataclass(frozen=True)
class TimeScheme:
    """A row of the table above.

    Attributes:
        levels: how many consecutive levels one residual reads.
        stages: evaluations; the residual is their weighted sum.
        differences: order of the time derivative -> combination of levels, to be divided by dt^order.
    """

    name: str
    levels: int
    stages: tuple[Stage, ...]
    differences: tuple[tuple[int, Levels], ...] = ()

    def difference(self, order: int) -> Levels | None:
        return dict(self.differences).get(order)


_STEP = ((1, ((0, -1.0), (1, 1.0))),)

STEADY = TimeScheme("steady", 1, (Stage(1.0, ((0, 1.0),), 0.0),))
SCHEMES = {
    scheme.name: scheme
    for scheme in (
        TimeScheme("forward_euler", 2, (Stage(1.0, ((0, 1.0),), 0.0),), _STEP),
        TimeScheme("backward_euler", 2, (Stage(1.0, ((1, 1.0),), 1.0),), _STEP),
        TimeScheme("crank_nicolson", 2, (Stage(0.5, ((0, 1.0),), 0.0), Stage(0.5, ((1, 1.0),), 1.0)), _STEP),
        TimeScheme("midpoint", 2, (Stage(1.0, ((0, 0.5), (1, 0.5)), 0.5),), _STEP),
        TimeScheme(
            "central",
            3,
            (Stage(1.0, ((1, 1.0),), 1.0),),
            ((1, ((0, -0.5), (2, 0.5))), (2, ((0, 1.0), (1, -2.0), (2, 1.0)))),
        ),
        TimeScheme("bdf2", 3, (Stage(1.0, ((2, 1.0),), 2.0),), ((1, ((0, 0.5), (1, -2.0), (2, 1.5))),)),
    )
}
