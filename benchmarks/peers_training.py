"""Time to errors of 1e-2 and 1e-3 of DeepXDE (PyTorch) and PINA: peers_training.py OUT PEER CASE [seconds]

PEER is deepxde or pina, CASE burgers or cavity (Re 100). A process runs one of them, up to its schedule's end or so
many seconds. Twice a second training is interrupted (the time of that does not count) and compared with the reference
that our own runs are compared with. Writes `OUT/<peer>_<case>.json`; for ours see the `metrics.csv` of
`burgers_accurate` and `cavity_100`, where time includes everything inside `fit` as it does here inside `train`.

Settings are those of the packages' own examples, in their default precision (float32):

    deepxde burgers   examples/pinn_forward/Burgers.py: 3 x 20 tanh, 2,540 + 80 + 160 points, Adam
                      15,000 at 1e-3, L-BFGS
    deepxde cavity    there is no cavity among them; those of Kovasznay_flow.py, also steady Navier-Stokes: 4 x 50 tanh,
                      2,601 + 400 points, Adam 30,000 at 1e-3, L-BFGS
    pina burgers      examples/run_burgers.py: 30, 20, 10, 5 Softplus, 2,000 + 150 + 150 points, Adam 5,000 at 6e-3
    pina cavity       there is none; those of run_stokes.py: 4 x 10 Softplus, 2,000 points + 1,000 on each side, Adam
                      1,000 at 1e-3, continued to the limit of time

The lid's velocity jumps at the corners; peers prescribe it as it is. Errors leave out a disc of 0.04 about both.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pinnfuse import problems
from pinnfuse.bench import machine

Array = NDArray[np.float64]
Predict = Callable[[Array], Array]
MARKS = (1e-2, 1e-3)
NU = 0.01 / np.pi
REYNOLDS = 100.0


class Clock:
    """Errors at times; what measuring takes is left out.

    Args:
        case: burgers or cavity.
        seconds: limit of time.
        every: seconds between two looks.
    """

    def __init__(self, case: str, seconds: float, every: float = 0.5):
        self.problem = (
            problems.get("burgers") if case == "burgers" else problems.get("navier_stokes", reynolds=REYNOLDS)
        )
        self.points, self.values, _ = self.problem.evaluation_points()
        self.case, self.seconds, self.every = case, seconds, every
        self.curve: list[tuple[float, int, float]] = []
        self.paused, self.looked = 0.0, 0.0
        self.start = time.perf_counter()

    @property
    def time(self) -> float:
        return time.perf_counter() - self.start - self.paused

    def step(self, step: int, predict: Predict) -> bool:
        """Look if it is time to; whether the limit is reached.

        Args:
            step: steps so far.
            predict: points (t, x) or (x, y) [N, 2] -> u, or u and v.
        """
        if self.time - self.looked < self.every:
            return False
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.looked = now = self.time
        begun = time.perf_counter()
        self.curve.append((round(now, 2), step, self.error(predict)))
        self.paused += time.perf_counter() - begun
        return now > self.seconds

    def error(self, predict: Predict) -> float:
        """Relative L2 of u, or of the velocity."""
        count = 1 if self.case == "burgers" else 2
        true = self.values[:, :count]
        kept = np.isfinite(true).all(1)
        found = predict(self.points[kept])[:, :count]
        return float(np.linalg.norm(found - true[kept]) / np.linalg.norm(true[kept]))

    def result(self) -> dict[str, Any]:
        """Times to the marks (None: not reached), the best error, the curve."""
        first = {f"{m:g}": next((t for t, _, e in self.curve if e <= m), None) for m in MARKS}
        best = min((e for *_, e in self.curve), default=None)
        return {"seconds_to": first, "best": best, "curve": self.curve, "columns": ["seconds", "step", "rel_l2"]}


def deepxde(case: str, clock: Clock) -> str:
    """Train with DeepXDE; returns its version."""
    os.environ["DDE_BACKEND"] = "pytorch"
    import deepxde as dde

    data, net, iterations = (_deepxde_burgers if case == "burgers" else _deepxde_cavity)(dde)
    model = dde.Model(data, net)

    class Watch(dde.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self) -> None:
            swapped = slice(None, None, -1) if case == "burgers" else slice(None)  # DeepXDE: time last
            step = self.model.train_state.step
            if clock.step(step, lambda points: self.model.predict(points[:, swapped].astype(np.float32))):
                self.model.stop_training = True

    clock.start = time.perf_counter()
    model.compile("adam", lr=1e-3)
    model.train(iterations=iterations, callbacks=[Watch()], verbose=0)
    if not model.stop_training:
        model.compile("L-BFGS")
        model.train(callbacks=[Watch()], verbose=0)
    return dde.__version__


def _deepxde_burgers(dde: Any) -> tuple[Any, Any, int]:
    def pde(x: Any, u: Any) -> Any:
        u_x, u_t = (dde.grad.jacobian(u, x, i=0, j=j) for j in (0, 1))
        return u_t + u * u_x - NU * dde.grad.hessian(u, x, i=0, j=0)

    space = dde.geometry.GeometryXTime(dde.geometry.Interval(-1, 1), dde.geometry.TimeDomain(0, 0.99))
    walls = dde.icbc.DirichletBC(space, lambda x: 0, lambda _, on: on)
    start = dde.icbc.IC(space, lambda x: -np.sin(np.pi * x[:, 0:1]), lambda _, on: on)
    data = dde.data.TimePDE(space, pde, [walls, start], num_domain=2540, num_boundary=80, num_initial=160)
    return data, dde.nn.FNN([2, 20, 20, 20, 1], "tanh", "Glorot normal"), 15_000


def _deepxde_cavity(dde: Any) -> tuple[Any, Any, int]:
    def pde(x: Any, f: Any) -> Any:
        first = {(i, j): dde.grad.jacobian(f, x, i=i, j=j) for i in range(3) for j in range(2)}
        laplace = [sum(dde.grad.hessian(f, x, component=i, i=j, j=j) for j in range(2)) for i in range(2)]
        u, v = f[:, 0:1], f[:, 1:2]
        momentum = [u * first[i, 0] + v * first[i, 1] + first[2, i] - laplace[i] / REYNOLDS for i in range(2)]
        return [*momentum, first[0, 0] + first[1, 1]]

    square = dde.geometry.Rectangle(xmin=[0, 0], xmax=[1, 1])
    lid = dde.icbc.DirichletBC(square, lambda x: np.isclose(x[:, 1:2], 1) * 1.0, lambda _, on: on, component=0)
    rest = dde.icbc.DirichletBC(square, lambda x: 0, lambda _, on: on, component=1)
    data = dde.data.PDE(square, pde, [lid, rest], num_domain=2601, num_boundary=400)
    return data, dde.nn.FNN([2, 50, 50, 50, 50, 3], "tanh", "Glorot normal"), 30_000


def pina(case: str, clock: Clock) -> str:
    """Train with PINA; returns its version."""
    from importlib.metadata import version

    from lightning.pytorch import Callback
    from pina import LabelTensor, Trainer
    from pina.model import FeedForward
    from pina.optim import TorchOptimizer
    from pina.solver import PhysicsInformedSingleModelSolver

    problem, layers, rate, epochs = (_pina_burgers if case == "burgers" else _pina_cavity)()
    model = FeedForward(
        len(problem.input_variables), len(problem.output_variables), layers=layers, func=torch.nn.Softplus
    )
    solver = PhysicsInformedSingleModelSolver(problem, model, optimizer=TorchOptimizer(torch.optim.Adam, lr=rate))
    ours = ["t", "x"] if case == "burgers" else ["x", "y"]

    def predict(points: Array) -> Array:
        given = LabelTensor(torch.as_tensor(points, dtype=torch.float32, device=solver.device), ours)
        with torch.no_grad():
            out = solver.forward(given.extract(problem.input_variables))
        return out.as_subclass(torch.Tensor).double().cpu().numpy()

    class Watch(Callback):
        def on_train_batch_end(self, trainer: Any, *unused: Any) -> None:
            if clock.step(trainer.global_step, predict):
                trainer.should_stop = True

    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = Trainer(solver, max_epochs=epochs, callbacks=[Watch()], devices=1, **quiet)
    clock.start = time.perf_counter()
    trainer.train()
    return version("pina-mathlab")


def _pina_burgers() -> tuple[Any, list[int], float, int]:
    from pina.problem.zoo import BurgersProblem

    problem = BurgersProblem(nu=NU)
    problem.discretise_domain(n=2000, mode="lh", domains=["D"])
    problem.discretise_domain(n=150, mode="random", domains=["boundary", "t0"])
    return problem, [30, 20, 10, 5], 0.006, 5000


def _pina_cavity() -> tuple[Any, list[int], float, int]:
    from pina import Condition
    from pina.domain import CartesianDomain
    from pina.equation import Equation
    from pina.operator import div, grad, laplacian
    from pina.problem import SpatialProblem

    def flow(points: Any, f: Any) -> Any:
        velocity, pressure = f.extract(["u", "v"]), grad(f, points, components=["p"])
        parts = []
        for name, slope in (("u", "dpdx"), ("v", "dpdy")):
            g = grad(f, points, components=[name])
            along = f.extract(["u"]) * g.extract([f"d{name}dx"]) + f.extract(["v"]) * g.extract([f"d{name}dy"])
            parts.append(along + pressure.extract([slope]) - laplacian(f, points, components=[name]) / REYNOLDS)
        parts.append(div(velocity, points, components=["u", "v"]))
        return torch.cat([part.as_subclass(torch.Tensor) for part in parts], dim=1)

    def wall(speed: float) -> Callable[[Any, Any], Any]:
        def equation(points: Any, f: Any) -> Any:
            u, v = (f.extract([name]).as_subclass(torch.Tensor) for name in "uv")
            return torch.cat([u - speed, v], dim=1)

        return equation

    sides = {"top": {"x": [0, 1], "y": 1}, "bottom": {"x": [0, 1], "y": 0}, "left": {"x": 0, "y": [0, 1]}}
    sides["right"] = {"x": 1, "y": [0, 1]}

    class Cavity(SpatialProblem):  # type: ignore[misc]
        output_variables = ["u", "v", "p"]  # noqa: RUF012  # PINA's form
        spatial_domain = CartesianDomain({"x": [0, 1], "y": [0, 1]})
        domains = {"D": spatial_domain} | {name: CartesianDomain(side) for name, side in sides.items()}  # noqa: RUF012
        conditions = {"D": Condition(domain="D", equation=Equation(flow))}  # noqa: RUF012
        conditions |= {name: Condition(domain=name, equation=Equation(wall(float(name == "top")))) for name in sides}

    problem = Cavity()
    problem.discretise_domain(n=1000, mode="random", domains=list(sides))
    problem.discretise_domain(n=2000, mode="random", domains=["D"])
    return problem, [10, 10, 10, 10], 0.001, 1_000_000


def main(out: str, peer: str, case: str, seconds: str = "120") -> None:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  # DeepXDE draws its points from it
    clock = Clock(case, float(seconds))
    version = {"deepxde": deepxde, "pina": pina}[peer](case, clock)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    result = {"peer": peer, "version": version, "case": case, "device": machine.name(device), "limit": clock.seconds}
    result |= clock.result() | {"versions": machine.versions()}
    Path(out).mkdir(parents=True, exist_ok=True)
    (Path(out) / f"{peer}_{case}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(peer, case, result["seconds_to"], "best", result["best"], "in", clock.curve[-1] if clock.curve else "no look")


if __name__ == "__main__":
    main(*sys.argv[1:])
