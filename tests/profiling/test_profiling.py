"""Profiles: stages by name, events that nest, kernels that belong to one operation."""

import json
import os
from pathlib import Path

import pytest
import torch

from pinnfuse.cli.main import main
from pinnfuse.profiling import profile, trace
from pinnfuse.simulation import Physarum
from pinnfuse.simulation.physarum import STAGES
from tests.tracking.offline import read

CPU = torch.device("cpu")


def event(name, cat, ts, dur, tid=1, **args):
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "pid": 1, "tid": tid, "args": args}


EVENTS = [
    event("physarum/agents", "user_annotation", 0, 100),
    event("aten::add", "cpu_op", 10, 40),
    event("cudaLaunchKernel", "cuda_runtime", 20, 10, correlation=1),
    event("cuLaunchKernelEx", "cuda_driver", 60, 5, correlation=2),
    event("physarum/diffuse", "user_annotation", 100, 50),
    event("cuLaunchKernelEx", "cuda_driver", 110, 5, correlation=3),
    event("add_kernel", "kernel", 200, 7, tid=9, correlation=1),
    event("agent kernel", "kernel", 210, 20, tid=9, correlation=2),
    event("field_kernel", "kernel", 230, 30, tid=9, correlation=3),
    event("field_kernel", "kernel", 260, 30, tid=9, correlation=99),
    {"ph": "i", "name": "mark", "ts": 3},
]


def test_every_kernel_belongs_to_one_operation() -> None:
    rows = {(k.name, k.range, k.operation, k.call): (k.count, k.microseconds) for k in trace.kernels(EVENTS)}
    assert rows == {
        ("field_kernel", "physarum/diffuse", "physarum/diffuse", "cuLaunchKernelEx"): (1, 30),
        ("field_kernel", "-", "-", "-"): (1, 30),
        ("agent kernel", "physarum/agents", "physarum/agents", "cuLaunchKernelEx"): (1, 20),
        ("add_kernel", "physarum/agents", "aten::add", "cudaLaunchKernel"): (1, 7),
    }


def test_folded_stacks_share_out_all_time() -> None:
    lines = dict(line.rsplit(" ", 1) for line in trace.folded(EVENTS))
    assert lines["host;physarum/agents"] == "55" and lines["host;physarum/agents;aten::add"] == "30"
    assert lines["device;physarum/agents;aten::add;add_kernel"] == "7"
    assert sum(int(v) for k, v in lines.items() if k.startswith("host")) == 150
    assert sum(int(v) for k, v in lines.items() if k.startswith("device")) == 87


def test_a_profile_names_the_stages(tmp_path: Path) -> None:
    sim = Physarum((30, 40), 100, backend="torch")
    found = profile(sim.step, tmp_path, "physarum", device=CPU, steps=3, warm_up=2, named=sim.named_ranges)
    assert sim.steps_done == 1 + 2 + 3 + 3 and found.launches == 0 and found.operations > 50
    assert {f"physarum/{stage}" for stage in STAGES} <= set(found.ranges)
    assert found.first_call > 0 and found.steady > 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["physarum.folded", "physarum.pt.trace.json"]
    events = json.loads(found.files[0].read_text())["traceEvents"]
    assert trace.ranges(events, "physarum/")["physarum/diffuse"][0] == 3
    begun = sum(e.get("ph") == "B" for e in events)
    assert begun == sum(e.get("ph") == "E" for e in events)  # balanced
    assert all(e["dur"] >= 0 for e in trace.complete(events))
    assert any(line.startswith("host;physarum/agents;physarum/sense") for line in trace.folded(events))


def test_wrong_numbers_and_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`steps` and `warm_up`"):
        profile(lambda: None, tmp_path, "x", device=CPU, steps=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write"):
        profile(lambda: None, tmp_path / "file", "x", device=CPU)


def test_the_command(tmp_path: Path, capsys, monkeypatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    command = ["profile", "physarum", "--shape", "20x20", "--agents", "50", "--device", "cpu", "--steps", "2"]
    assert main([*command, "--out", str(tmp_path), "--logger", "wandb"]) == 0
    out = capsys.readouterr().out
    assert "physarum/diffuse" in out and "first call" in out
    sizes = {name: (tmp_path / name).stat().st_size for name in ("physarum.pt.trace.json", "physarum.folded")}
    assert read(tmp_path).artifacts == {"pinnfuse-profile": sizes}


@pytest.mark.gpu
def test_on_a_card_every_kernel_has_its_stage(tmp_path: Path) -> None:
    sim = Physarum((128, 128), 2000, device="cuda")
    found = profile(sim.step, tmp_path, "physarum", device=sim.device, steps=5, named=sim.named_ranges)
    assert found.launches == 2 and found.first_call > found.steady
    assert {(k.name, k.range) for k in found.kernels} == {
        ("agent_sense_and_update_kernel", "physarum/sense + steer + deposit"),
        ("diffuse_and_decay_kernel", "physarum/diffuse"),
    }
    assert os.path.getsize(found.files[0]) > 0
