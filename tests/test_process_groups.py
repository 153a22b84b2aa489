"""A process that used a process group ends with the status it earned."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os
import torch
import torch.distributed as dist
import pinnfuse

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
parameter = torch.nn.Parameter(torch.ones(2))
torch.optim.Adam([parameter])
dist.all_reduce(parameter.data)
dist.destroy_process_group()
for task in os.listdir("/proc/self/task"):
    name = open(f"/proc/self/task/{task}/comm").read()
    assert "gloo" not in name, name
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="lists threads as Linux does")
def test_no_thread_outlives_its_group():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
