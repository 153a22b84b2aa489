"""The run's own record: `metrics.csv`, and the same rows in memory for the figures."""

from __future__ import annotations

import csv
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import Logger

from pinnfuse.files import whole_file


class History(Logger):
    """Logger that keeps every row and writes them to one CSV: a column for each metric, a row for each step.

    The file is rewritten only when a new metric appears, otherwise rows are appended. A resumed run reads the rows
    that were there and drops those after the step it resumes from.

    Args:
        path: of the CSV; None keeps the rows in memory only.
        seconds: between two writes.
    """

    def __init__(self, path: Path | None = None, seconds: float = 2.0):
        super().__init__()
        self.path, self.seconds = path, seconds
        self._written = time.monotonic()
        self._last = -1  # last step in the file; -1 if this run has not written it
        self.rows: dict[int, dict[str, float]] = {}
        self._columns = ["step"]
        self._pending: list[int] = []

    @property
    def name(self) -> str:
        return "history"

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str | None:
        return str(self.path.parent) if self.path else None

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: the configuration lies beside the CSV as `config.yaml`."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        step = int(step or 0)
        row = self.rows.setdefault(step, {})
        row.update({key: float(value) for key, value in metrics.items() if key not in ("epoch", "step")})
        if step not in self._pending:
            self._pending.append(step)
        if time.monotonic() - self._written > self.seconds:
            self.save()

    @rank_zero_only
    def save(self) -> None:
        """Write what has not been written."""
        self._written = time.monotonic()
        if self.path is None or not self._pending:
            return
        new = {key: None for step in self._pending for key in self.rows[step] if key not in self._columns}
        self._columns += new
        append = self._last >= 0 and not new and self._pending[0] > self._last
        steps = self._pending if append else sorted(self.rows)
        target = nullcontext(self.path) if append else whole_file(self.path)
        with target as path, path.open("a" if append else "w", newline="") as file:
            writer = csv.DictWriter(file, self._columns, lineterminator="\n")
            if not append:
                writer.writeheader()
            writer.writerows({"step": step, **self.rows[step]} for step in steps)
        self._pending, self._last = [], steps[-1]

    @rank_zero_only
    def finalize(self, status: str) -> None:
        self.save()

    def resume(self, step: int) -> None:
        """Read the rows up to `step` that an earlier run wrote; what is not a whole row (it was killed) is dropped."""
        if self.path is None or not self.path.exists():
            return
        lines = self.path.read_text(errors="replace").splitlines(keepends=True)
        for line in csv.DictReader([text for text in lines if text.endswith("\n")]):
            with suppress(KeyError, TypeError, ValueError):
                if int(line["step"]) <= step:
                    self.rows[int(line["step"])] = {k: float(v) for k, v in line.items() if v and k != "step"}
        self._columns += dict.fromkeys(key for row in self.rows.values() for key in row)
        self._pending = list(self.rows)  # the file is written anew, without the rows after `step`

    def series(self) -> dict[str, tuple[list[int], list[float]]]:
        """{metric: (steps, values)}."""
        out: dict[str, tuple[list[int], list[float]]] = {}
        for step in sorted(self.rows):
            for key, value in self.rows[step].items():
                steps, values = out.setdefault(key, ([], []))
                steps.append(step)
                values.append(value)
        return out
