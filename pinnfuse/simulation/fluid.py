r"""Incompressible flow in two dimensions: staggered velocities, projection by Poisson's equation.

    u_t + div(u u) = -grad p + nu laplacian(u) + f,     div u = 0

Each stage of the three-stage Runge-Kutta scheme of Shu and Osher (strongly stable, third order) moves the velocity
without pressure and then subtracts the gradient that makes it free of divergence. On the staggered cells divergence
of gradient *is* the second difference that `poisson_solve` inverts, so the divergence after a step is at rounding.

Source: Chorin, Numerical solution of the Navier-Stokes equations, Math. Comp. 22 (1968); Shu, Osher, J. Comput. Phys.
77 (1988). A second-order scheme in space: the error falls as h^2 (`tests/simulation/test_fluid.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pinnfuse.grid import Grid, Neumann, Periodic
from pinnfuse.grid.grid import check_grid
from pinnfuse.parameters import number
from pinnfuse.simulation.poisson import poisson_solve
from pinnfuse.simulation.staggered import Velocity, acceleration, axes, divergence

Function = Callable[[Tensor, Tensor], Tensor]


class FluidSimulator:
    """Flow in a box.

        grid = Grid("x y", 1 / 128, centring="cell", boundary={"x": "dirichlet", "y": (Dirichlet(0.0), Dirichlet(1.0))})
        flow = FluidSimulator(grid, (128, 128), viscosity=0.01)      # a lid that moves with speed 1
        flow.run(until=10.0)
        u, v = flow.velocity()

    Args:
        grid: two axes, cell-centred, order 2. Along an axis with walls `Dirichlet(speed)` is the speed of each wall in
            its own plane (no slip, nothing passes); other axes are periodic.
        shape: number of cells per axis.
        viscosity: kinematic, length^2 / time, >= 0; or a tensor `[batch, 1, 1]`, one for each flow of a batch.
        batch: number of flows computed together; None for one, without a batch dimension.
        forcing: acceleration (f_x, f_y), each a function of (x, y); constant in time.

    Raises:
        ValueError: grids, viscosities or steps that make no sense; a step that would be unstable names the largest
            stable one, and the flow stays as it was.
    """

    def __init__(
        self,
        grid: Grid,
        shape: Sequence[int],
        viscosity: float | Tensor,
        *,
        batch: int | None = None,
        forcing: tuple[Function, Function] | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        self.x, self.y = axes(check_grid(grid, "FluidSimulator"))
        cells = tuple(shape)
        if len(cells) != 2 or min(cells) < 4 or any(n != int(n) for n in cells):
            raise ValueError(f"FluidSimulator: `shape` must be two numbers of cells, at least 4; got {cells}.")
        self.grid, self.shape = grid, tuple(int(n) for n in cells)
        grid.check(torch.empty(self.shape, dtype=dtype, device="meta"), "FluidSimulator", "shape")
        if batch is not None and (batch < 1 or batch != int(batch)):
            raise ValueError(f"FluidSimulator: `batch` must be a whole number >= 1, or None for one flow; got {batch}.")
        lead = () if batch is None else (int(batch),)
        if not isinstance(viscosity, Tensor):
            viscosity = number(viscosity, "FluidSimulator: `viscosity`")
        elif viscosity.dim() and tuple(viscosity.shape) not in ((*lead, 1, 1), (1,) * (len(lead) + 2)):
            raise ValueError(
                f"FluidSimulator: `viscosity` must be a number or one for each flow, {[*lead, 1, 1]}; got "
                f"{list(viscosity.shape)}. Use viscosity.view(-1, 1, 1) and batch={viscosity.numel()}."
            )
        numbers = viscosity.detach() if isinstance(viscosity, Tensor) else torch.tensor(viscosity)
        if not bool(torch.isfinite(numbers).all()) or bool((numbers < 0).any()):
            raise ValueError(f"FluidSimulator: `viscosity` must be finite and >= 0; got {viscosity}.")
        self.viscosity = viscosity.to(device, dtype) if isinstance(viscosity, Tensor) else viscosity
        self._largest_viscosity = float(numbers.max())
        self._pressure_grid = Grid(
            grid.axes,
            grid.spacing,
            boundary={a: Periodic() if grid.periodic[a] else Neumann(0.0) for a in grid.axes},
            centring="cell",
        )
        like = torch.zeros((), dtype=dtype, device=device)
        self.u = like.new_zeros(*lead, self.x.faces(self.shape[0]), self.shape[1])
        self.v = like.new_zeros(*lead, self.shape[0], self.y.faces(self.shape[1]))
        self._pressure = like.new_zeros(*lead, *self.shape)
        self.time = 0.0
        self._captured: _Captured | None = None
        self._forcing = None
        if forcing is not None:
            if not isinstance(forcing, Sequence) or len(forcing) != 2 or not all(map(callable, forcing)):
                raise ValueError(f"FluidSimulator: `forcing` must be two functions of (x, y); got {forcing!r}.")
            self._forcing = self._on_faces((forcing[0], forcing[1]), "forcing")

    # -- state ---------------------------------------------------------------------------------------------------

    def face_coordinates(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """((x, y) of the stored u, (x, y) of the stored v), broadcastable."""
        centres = self.grid.coordinates(self.shape, self.u.device, torch.float64)
        found = []
        for k, axis in enumerate((self.x, self.y)):
            at = [centres[a] for a in self.grid.axes]
            at[k] = at[k] - 0.5 * axis.h
            if not axis.periodic:
                at[k] = at[k][1:]
            found.append((at[0][:, None], at[1][None, :]))
        return found[0], found[1]

    def set_velocity(self, u: Function | Tensor, v: Function | Tensor) -> None:
        """Start from functions of (x, y), or from fields at the cells' centres; made free of divergence."""
        if isinstance(u, Tensor) and isinstance(v, Tensor):
            wanted = (*self.u.shape[:-2], *self.shape)
            for name, field in (("u", u), ("v", v)):
                if tuple(field.shape) not in (wanted, self.shape):
                    raise ValueError(
                        f"FluidSimulator.set_velocity: `{name}` must be {list(wanted)}; got {list(field.shape)}."
                    )
            given = (
                self.x.to_faces(u.to(self.u))[0].expand_as(self.u),
                self.y.to_faces(v.to(self.v))[0].expand_as(self.v),
            )
        elif callable(u) and callable(v):
            given = self._on_faces((u, v), "set_velocity")
        else:
            raise ValueError(
                f"FluidSimulator.set_velocity: `u`, `v` must be two tensors or two functions; got {type(u).__name__}, "
                f"{type(v).__name__}."
            )
        if not all(bool(torch.isfinite(field).all()) for field in given):
            raise ValueError("FluidSimulator.set_velocity: `u` and `v` must be finite; got NaN or Inf.")
        (self.u, self.v), _ = self._project(given)

    def velocity(self) -> Velocity:
        """(u, v) at the centres of cells, `[batch, nx, ny]`."""
        return self.x.to_cells(self.u)[0], self.y.to_cells(self.v)[0]

    def pressure(self) -> Tensor:
        """At the centres of cells, over the density, with mean 0: of the last step."""
        return self._pressure

    def vorticity(self) -> Tensor:
        """v_x - u_y at the centres of cells: the mean of the corners."""
        corners = self.x.to_edges(self.y.all_faces(self.v))[1] - self.y.to_edges(self.x.all_faces(self.u))[1]
        return corners.unfold(-2, 2, 1).unfold(-2, 2, 1).mean((-2, -1))

    def divergence(self) -> Tensor:
        """Of every cell."""
        return divergence((self.u, self.v), self.x, self.y)

    def max_speed(self) -> float:
        u, v = self.velocity()
        return float((u.square() + v.square()).max().sqrt())

    # -- steps ---------------------------------------------------------------------------------------------------

    def stable_step(self) -> float:
        """The largest stable time step of the flow as it is.

        The scheme is stable for -lambda dt < 2.51 (diffusion) and |lambda| dt < sqrt(3) (convection); between them an
        ellipse is inside its region of stability. A tenth is kept in hand.
        """
        hx, hy = self.x.h, self.y.h
        diffusion = 4 * self._largest_viscosity * (hx**-2 + hy**-2) / 2.51
        walls = max(map(abs, (self.x.low, self.x.high, self.y.low, self.y.high)))
        u, v = (max(float(w.abs().max()), walls) for w in (self.u, self.v))
        rate = math.hypot(diffusion, (u / hx + v / hy) / math.sqrt(3.0))
        return 0.9 / rate if rate else math.inf

    def step(self, dt: float) -> None:
        """One step, without a look at the numbers (`run` guards it); units of time."""
        start = (self.u, self.v)
        one, pressure = self._project(self._euler(start, dt))
        two, _ = self._project(_mix(0.75, start, self._euler(one, dt)))
        (self.u, self.v), _ = self._project(_mix(1 / 3, start, self._euler(two, dt)))
        self._pressure = pressure / dt
        self.time += dt

    def run(
        self,
        until: float | None = None,
        *,
        steps: int | None = None,
        dt: float | None = None,
        every: int = 100,
        report: Callable[[FluidSimulator], None] | None = None,
    ) -> FluidSimulator:
        """Steps up to a time, or a number of them. `report(self)` is called every `every` steps, where the largest
        speed is checked against the step too.

        Args:
            until: time to reach, > `self.time`; or give `steps`.
            dt: of a step; the stable one by default, less a tenth for speeds that grow. Where they grow more, the
                steps since the last look are made anew, half as long.

        Raises:
            ValueError: a `dt` that is, or becomes, unstable; the flow is then that of the last look.
            FloatingPointError: the flow does not stay finite.
        """
        if (until is None) == (steps is None):
            raise ValueError("FluidSimulator.run: give either `until` or `steps`; got both or neither.")
        whole = all(n is None or n == int(n) for n in (steps, every))
        far = until is not None and not self.time <= until < math.inf
        if every < 1 or (steps is not None and steps < 0) or far or not whole:
            raise ValueError(
                f"FluidSimulator.run: needs whole `every` >= 1 and `steps` >= 0, finite `until` >= {self.time:g}; got "
                f"every={every}, steps={steps}, until={until}."
            )
        own, least = dt is None, 0.0
        if dt is None:
            dt = 0.9 * min(self.stable_step(), 1.0)
            least = 1e-6 * dt
        self._guard(dt)
        left, dt = self._steps(until, steps, dt)
        while left:
            count, before = min(int(every), left), (self.u, self.v, self._pressure, self.time)
            self._advance(dt, count)
            try:
                self._guard(dt)
            except (ValueError, FloatingPointError):
                self.u, self.v, self._pressure, self.time = before
                if not own or dt < least:
                    raise
                left, dt = self._steps(until, left, dt / 2)
                continue
            left -= count
            if report is not None:
                report(self)
        return self

    def solve_navier_stokes(self, dt: float, steps: int) -> Velocity:
        """`steps` steps of `dt`; returns (u, v) at the centres of cells."""
        return self.run(steps=steps, dt=dt).velocity()

    # -- inside --------------------------------------------------------------------------------------------------

    def _steps(self, until: float | None, steps: int | None, dt: float) -> tuple[int, float]:
        """How many steps, and of which length, at most `dt`."""
        if until is None:
            assert steps is not None
            return int(steps), dt
        left = max(math.ceil((until - self.time) / dt - 1e-9), 0)
        return left, (until - self.time) / left if left else dt

    def _advance(self, dt: float, count: int) -> None:
        """`count` steps; on a card from the third on as replays of a CUDA graph of one."""
        captured = self._captured if self._captured is not None and self._captured.dt == dt else None
        if captured is None and (not self.u.is_cuda or count < 4):
            for _ in range(count):
                self.step(dt)
            return
        if captured is None:
            for _ in range(2):  # plans of the transforms, caches
                self.step(dt)
            count -= 2
            captured = self._captured = _Captured(self, dt)
        captured.replay(self, count)

    def _guard(self, dt: float) -> None:
        if not (math.isfinite(dt) and dt > 0):
            raise ValueError(f"FluidSimulator: `dt` must be > 0; got {dt}.")
        largest = self.stable_step()
        if not math.isfinite(float(self.u.sum() + self.v.sum())):
            raise FloatingPointError(
                f"FluidSimulator: the flow is not finite at time {self.time:g}. Use a smaller step."
            )
        if dt > largest:
            raise ValueError(
                f"FluidSimulator: `dt` = {dt:.4g} would be unstable at time {self.time:g}; the largest stable step is "
                f"{largest:.4g}. Use a smaller one, or a coarser grid."
            )

    def _on_faces(self, functions: tuple[Function, Function], name: str) -> Velocity:
        found = []
        for f, (x, y), like in zip(functions, self.face_coordinates(), (self.u, self.v), strict=True):
            values = torch.as_tensor(f(x, y), dtype=torch.float64, device=like.device)
            try:
                found.append(values.to(like.dtype).expand_as(like).contiguous())
            except RuntimeError as error:
                raise ValueError(
                    f"FluidSimulator: functions of `{name}` must return what broadcasts to {list(like.shape)}, as "
                    f"their arguments {list(x.shape)} and {list(y.shape)} do; got {list(values.shape)}."
                ) from error
            if not bool(torch.isfinite(found[-1]).all()):
                raise ValueError(f"FluidSimulator: functions of `{name}` must be finite; got NaN or Inf.")
        return found[0], found[1]

    def _euler(self, velocity: Velocity, dt: float) -> Velocity:
        du, dv = acceleration(velocity, self.x, self.y, self.viscosity)
        if self._forcing is not None:
            du, dv = du + self._forcing[0], dv + self._forcing[1]
        return velocity[0] + dt * du, velocity[1] + dt * dv

    def _project(self, velocity: Velocity) -> tuple[Velocity, Tensor]:
        phi = poisson_solve(divergence(velocity, self.x, self.y), self._pressure_grid, compatible="project")
        u, v = velocity
        return (u - self.x.to_faces(phi)[1], v - self.y.to_faces(phi)[1]), phi


def _mix(share: float, first: Velocity, second: Velocity) -> Velocity:
    u, v = (torch.lerp(b, a, share) for a, b in zip(first, second, strict=True))
    return u, v


class _Captured:
    """One step as a CUDA graph, on tensors of its own."""

    def __init__(self, flow: FluidSimulator, dt: float):
        self.dt = dt
        own, time = (flow.u, flow.v, flow._pressure), flow.time
        self.state = [t.clone() for t in own]
        flow.u, flow.v, flow._pressure = self.state
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            flow.step(dt)
            for held, new in zip(self.state, (flow.u, flow.v, flow._pressure), strict=True):
                held.copy_(new)
        (flow.u, flow.v, flow._pressure), flow.time = own, time

    def replay(self, flow: FluidSimulator, count: int) -> None:
        for held, now in zip(self.state, (flow.u, flow.v, flow._pressure), strict=True):
            held.copy_(now)
        for _ in range(count):
            self.graph.replay()
            flow.time += self.dt
        flow.u, flow.v, flow._pressure = (t.clone() for t in self.state)
