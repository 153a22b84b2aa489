"""Every jet kernel compiles for every supported architecture; no card is needed. Each runs in a process of its own,
since this one may interpret."""

import json
import os
import subprocess
import sys

import pytest

from pinnfuse.kernels.jets.config import SHARED_KB

SCRIPT = """
import json, sys
from dataclasses import asdict
from pinnfuse import PDE
from pinnfuse.jets.plan import plan
from pinnfuse.kernels.jets.offline import resources
from pinnfuse.kernels.jets.spec import Spec

capability, width, precision, activation, hopper, dimension = json.loads(sys.argv[1])
x = [f"x{i}" for i in range(dimension)]
text = " + ".join(f"u_{c}{c}" for c in x) + " - x0"
if dimension == 2:
    x, text = ["t", "x"], "u_t + u*u_x - 0.01*u_xx"
pde = PDE("u", " ".join(x), equations={"equation": text})
p = plan(pde)
spec = Spec(p.space, (activation,), p.outputs, 1, p)
print(json.dumps([asdict(r) for r in resources(spec, width, precision, capability, hopper)]))
"""


GATED = """
import json, sys
from dataclasses import asdict
from pinnfuse import PDE, models
from pinnfuse.jets import recognise
from pinnfuse.jets.plan import plan
from pinnfuse.kernels.jets.offline import schedule_resources

capability, width, precision, activation, kind, dimension = json.loads(sys.argv[1])
x = [f"x{i}" for i in range(dimension)]
p = plan(PDE("u", x, equations={"equation": "laplacian(u) + u*u_x0"}))
net = models.get(kind)(dimension, 1, width=width, depth=1 if kind == "piratenet" else 2, activation=activation)
rows = schedule_resources(recognise(net, dimension).program, p, precision, capability)
print(json.dumps([asdict(r) for r in rows]))
"""


def compiled(script, case, tmp_path, root):
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(case)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "case",
    [
        (80, 128, "float32", "tanh", "modified_mlp", 2),
        (90, 256, "float32", "tanh", "piratenet", 2),
        (90, 64, "float64", "tanh", "modified_mlp", 2),
        (100, 64, "tf32", "silu", "modified_mlp", 2),
        (90, 64, "float32", "tanh", "modified_mlp", 100),
    ],
    ids=str,
)
def test_schedules_compile_without_a_card(case, tmp_path, root):
    rows = compiled(GATED, case, tmp_path, root)
    products = [row for row in rows if row["kernel"] == "product_kernel"]
    assert len(rows) - len(products) >= 7 and bool(products) == (case[2] != "float64")  # those are cuBLAS'
    for row in rows:
        assert 0 < row["registers"] <= 255
        assert row["shared"] <= SHARED_KB[case[0]] * 1024, row
        assert row["stack"] <= (2048 if case[2] == "float64" else 1024 if case[0] < 90 else 64), row


@pytest.mark.parametrize(
    "case",
    [
        (80, 64, "float32", "tanh", False, 2),
        (80, 128, "float32", "silu", False, 2),
        (89, 128, "float32", "silu", False, 2),
        (90, 128, "float32", "silu", False, 2),
        (100, 64, "tf32", "tanh", False, 2),
        (90, 32, "float64", "tanh", False, 2),
        (90, 64, "float32", "tanh", True, 2),
        (90, 128, "tf32", "gelu", True, 2),
        (90, 128, "float32", "tanh", True, 2),
        (90, 128, "float32", "tanh", True, 10),
        (90, 256, "tf32", "tanh", True, 100),
        (80, 128, "float32", "silu", False, 10),
        (100, 64, "float32", "tanh", False, 100),
    ],
    ids=str,
)
def test_compiles_without_a_card(case, tmp_path, root):
    rows = compiled(SCRIPT, case, tmp_path, root)
    assert len(rows) >= 5
    for row in rows:
        assert 0 < row["registers"] <= 255
        assert row["shared"] <= SHARED_KB[case[0]] * 1024, row
        # three channels leave room on the cards with wgmma; float64 and the register operands of sm_80 need more
        assert row["stack"] <= (1024 if case[2] == "float64" or case[0] < 90 else 256), row
