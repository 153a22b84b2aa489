"""`train.py` on one process, resumed on two and on one again; and a process that dies: what is said, after how long.

    python benchmarks/ranks.py benchmarks/results [--accelerator cpu] [--steps 200]

The default problem of navier_stokes, on two cards of this machine or on CPU processes (gloo). Writes
`<out>/<card>/ranks.json`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from jsonargparse import auto_cli

from pinnfuse.bench import machine

ROOT = Path(__file__).resolve().parent.parent
QUIET = ["--record.figures", "false", "--record.speedup_steps", "0", "--logger", "csv", "--threads", "1"]
OFTEN = ["--record.checkpoint_seconds", "0", "--record.log_every", "5"]
LONGEST = 60.0
"""Seconds after which a run that lost a process is over."""


def train(*options: str) -> list[str]:
    return [sys.executable, str(ROOT / "train.py"), *options]


def part(name: str, folder: Path, devices: int, steps: int, *options: str) -> dict[str, Any]:
    """A run up to so many steps."""
    start = time.perf_counter()
    command = train(*options, "--devices", str(devices), "--max_steps", str(steps))
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    row = {"part": name, "devices": devices, "status": done.returncode, "seconds": time.perf_counter() - start}
    if done.returncode:
        return row | {"said": done.stderr[-600:]}
    summary = json.loads((folder / "summary.json").read_text())
    return row | {key: summary[key] for key in ("steps", "loss", "rel_l2", "backend")}


def step_of(folder: Path) -> int:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["pinnfuse"]["step"]


def death(folder: Path, steps: int) -> dict[str, Any]:
    """Resume on two processes, kill the second one, wait for the first."""
    command = train("--resume", str(folder), "--devices", "2", "--max_steps", str(100 * steps), *OFTEN)
    before = (folder / "checkpoints" / "last.ckpt").stat().st_mtime
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while (folder / "checkpoints" / "last.ckpt").stat().st_mtime == before:
        if process.poll() is not None:
            return {"part": "a process dies", "status": process.returncode, "said": process.stderr.read()[-600:]}
        time.sleep(0.2)
    ranks = [pid for pid in map(int, children.read_text().split()) if b"train.py" in _words(pid)]
    os.kill(ranks[0], signal.SIGKILL)
    start = time.perf_counter()
    try:
        errors = process.communicate(timeout=3 * LONGEST)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        errors = process.communicate()[1]
    seconds = time.perf_counter() - start
    said = [line for line in errors.splitlines() if line.startswith("error:") or "--resume" in line]
    met = process.returncode != 0 and seconds <= LONGEST and len(said) > 0
    return {"part": "a process dies", "status": process.returncode, "seconds": seconds, "said": said, "met": met}


def _words(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def main(out: str, accelerator: str = "auto", steps: int = 200) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() and accelerator != "cpu" else "cpu")
    target = Path(out) / machine.name(device) / "ranks.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {**machine.head(device), "rows": []}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        first = ["--pde", "navier_stokes", "--accelerator", accelerator, "--out", str(folder), *QUIET]
        again = ["--resume", str(folder)]
        for name, devices, options in (("one process", 1, first), ("then two", 2, again), ("then one", 1, again)):
            report["rows"].append(part(name, folder, devices, steps * (1 + len(report["rows"])), *options))
            print(report["rows"][-1], flush=True)
        report["rows"].append(death(folder, steps))
        print(report["rows"][-1], flush=True)
        report["rows"].append(part("resumed after it", folder, 2, steps + step_of(folder), *again))
        print(report["rows"][-1], flush=True)
    target.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    auto_cli(main, description=(__doc__ or "").splitlines()[0])
