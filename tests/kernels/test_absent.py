"""Kernels are compiled for a card that is not here, together before the first step, and found by the next process.

In processes of their own, since this one may interpret.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

from pinnfuse.errors import BackendUnavailable
from pinnfuse.kernels import absent

SCRIPT = """
import json, logging, sys
import torch
from torch import nn
from pinnfuse import PDE, FusedResidualLoss, models
from pinnfuse.kernels import absent, launching

launching.SILENCE = 0.0
messages, started = [], []
handler = logging.Handler()
handler.emit = lambda record: messages.append(record.getMessage())
logging.getLogger("pinnfuse").addHandler(handler)
absent._Driver.launcher_cls = lambda self, src, metadata: lambda *_: started.append(src.name)

def steps(net):
    net, points = net.to("cuda"), torch.rand(70, 2, device="cuda")
    loss_fn = FusedResidualLoss(PDE("u", "t x", equations={"heat": "u_t - u_xx"}), backend="triton")
    found = []
    for _ in range(2):
        compiled.clear(), started.clear()
        loss_fn(net, points).backward()
        found.append({"asked": [k.kernel for k in compiled], "new": sum(bool(k.seconds) for k in compiled),
                      "started": list(started)})
    return found

with absent.card("h200") as compiled:
    assert torch.cuda.is_available() and torch.zeros(2, device="cuda").device == torch.device("cuda", 0)
    stack = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    found = [steps(stack), steps(models.ModifiedMLP(2, 1, width=16, depth=2))]
assert not torch.cuda.is_available() and torch.zeros(2).device.type == "cpu"
print(json.dumps({"stack": found[0], "gates": found[1], "messages": messages}))
"""


def run(tmp_path, root):
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(root), "CUDA_VISIBLE_DEVICES": ""}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "PINNFUSE_CACHE": str(tmp_path / "sources")}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_compiled_once_and_found_by_the_next_process(tmp_path, root):
    first, second = run(tmp_path, root), run(tmp_path, root)
    for kind in ("stack", "gates"):
        cold, warm = first[kind]
        assert cold["new"] == len(cold["asked"]) >= 6
        assert warm["asked"] == [] and warm["started"] == cold["started"]  # the rehearsal started nothing
        assert set(cold["started"]) >= set(cold["asked"])
        again = second[kind][0]
        assert again["new"] == 0 and sorted(again["asked"]) == sorted(cold["asked"])
        assert again["started"] == cold["started"]
    assert len(first["messages"]) == 2 and "compiles kernels (" in first["messages"][0]


def test_an_unknown_card():
    with pytest.raises(ValueError, match="h200"), absent.card("h20"):
        pass


def test_not_beside_a_card_that_is_here(monkeypatch):
    """Compiled kernels and constants are kept by device, and those of a pretended one do nothing."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(BackendUnavailable, match="CUDA_VISIBLE_DEVICES"), absent.card("h200"):
        pass
