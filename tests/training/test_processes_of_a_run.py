"""A run of two processes: one dies, the job ends with a message, one process goes on, and two again."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from pinnfuse.datamodules import Points
from pinnfuse.datamodules.collocation import Batch
from pinnfuse.training import cli
from pinnfuse.training.run import Run

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
RUN = ["--pde", "navier_stokes", "--problem", "kovasznay", "--accelerator", "cpu", "--logger", "csv"]
RUN += ["--backend", "torch", "--network.width", "8", "--training.interior", "32", "--training.boundary", "8"]
RUN += ["--training.phases", '[{"optimizer": "adam", "steps": 1000000}]', "--training.resample_every", "1"]
RUN += ["--record.log_every", "5", "--record.checkpoint_seconds", "0", "--record.speedup_steps", "0"]
RUN += ["--record.figures", "false", "--record.validate_first", "0", "--record.validate_every", "1000000"]


def command(root, *arguments):
    return [sys.executable, str(root / "train.py"), *arguments]


def step_of(folder):
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["pinnfuse"]["step"]


def weights_of(folder):
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


@pytest.fixture(scope="module")
def killed(root, tmp_path_factory):
    """A run whose second process was killed: its folder, the exit status, what it said."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    arguments = command(root, *RUN, "--devices", "2", "--out", str(folder))
    process = subprocess.Popen(arguments, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not (folder / "checkpoints" / "last.ckpt").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, process.kill()
        time.sleep(0.1)
    (child,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    os.kill(child, signal.SIGKILL)
    _, errors = process.communicate(timeout=300)  # some 10 s where nothing else runs
    return folder, process.returncode, errors


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="finds the second process in /proc")
def test_a_dead_process_ends_the_job_with_a_message(killed):
    folder, status, errors = killed
    assert status != 0
    assert re.search(r"^error: the run lost a process: .*", errors, re.MULTILINE)
    assert f"python train.py --resume {folder}" in errors
    assert "Traceback" not in errors


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="finds the second process in /proc")
def test_one_process_goes_on_with_the_checkpoint_of_two_and_two_with_that_of_one(killed, root):
    folder = killed[0]
    before = step_of(folder)
    alone = Run(cli.parse(["--resume", str(folder), "--devices", "1", "--max-steps", str(before + 10)]))
    assert alone.resumed_at == before
    alone.fit()
    assert alone.module.global_step == step_of(folder) == before + 10

    copy = folder.parent / "copy"
    shutil.copytree(folder, copy)
    last = ["--max-steps", str(before + 20)]
    done = subprocess.run(
        command(root, "--resume", str(folder), "--devices", "2", *last),
        env=ENVIRONMENT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "training" in lines and len(set(lines)) == len(lines)  # one process speaks
    assert step_of(folder) == before + 20

    union = Run(cli.parse(["--resume", str(copy), "--devices", "1", *last]))
    draw = union.data.draw

    def both(index, rank, device):
        """The points of both processes: all terms are means, so the mean of two losses is the loss of the union."""
        parts = [draw(index, rank, device) for rank in (0, 1)]
        return Batch({name: _joined([part[name] for part in parts]) for name in parts[0]})

    union.data.draw = both
    union.fit()
    two = weights_of(folder)
    for name, value in union.module.state_dict().items():
        torch.testing.assert_close(two[name], value, rtol=1e-9, atol=1e-12)


def _joined(parts):
    data = None if parts[0].data is None else {k: torch.cat([p.data[k] for p in parts]) for k in parts[0].data}
    return Points(torch.cat([p.points for p in parts]), data)
