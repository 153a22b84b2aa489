"""The rows of `pinnfuse bench` in Weights & Biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pinnfuse.bench import suite


def log(report: dict[str, Any], folder: Path) -> None:
    """One run in `folder/wandb`: a table of all rows, the picture, and the settings; offline without an account."""
    import wandb

    from pinnfuse.tracking.wandb import start_run  # needs Lightning

    config = {key: value for key, value in report.items() if key != "rows"}
    run = start_run("pinnfuse-bench", folder, config, name=f"jets {report['machine']}")
    flat = [_flat(row) for row in report["rows"]]
    columns: list[str | int] = list(dict.fromkeys(key for row in flat for key in row))
    table = wandb.Table(columns=columns, data=[[row.get(str(key)) for key in columns] for row in flat])
    run.log({"rows": table, "picture": wandb.Image(str(folder / "jets.png"))})
    run.finish()


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Quantiles as columns of their own: `ms_median`, ..."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        if key == "goals":
            value = suite.told(value)
        found |= {f"{key}_{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return found
