"""Numbers of a running simulation in any Lightning logger."""

from __future__ import annotations

from collections.abc import Callable

from lightning.pytorch.loggers import Logger

from pinnfuse.simulation import FluidSimulator


def follow(logger: Logger, dt: float | None = None) -> Callable[[FluidSimulator], None]:
    """A `report` for `FluidSimulator.run`: logs `sim/max_speed`, `sim/divergence`, `sim/time`, and with `dt`
    `sim/share_of_stable_step` (unstable beyond 1; `run` refuses then).

        flow.run(until=10.0, every=100, report=follow(History(Path("flow.csv"))))

    Args:
        logger: `pinnfuse.tracking.History`, Lightning's W&B logger, ...; rows are numbered by calls.
        dt: the step of the run.
    """
    count = 0

    def report(flow: FluidSimulator) -> None:
        nonlocal count
        count += 1
        row = {
            "sim/max_speed": flow.max_speed(),
            "sim/divergence": float(flow.divergence().abs().max()),
            "sim/time": flow.time,
        }
        if dt is not None:
            row["sim/share_of_stable_step"] = dt / flow.stable_step()
        logger.log_metrics(row, step=count)

    return report
