"""The text of the operators' kernels, and that it compiles for every supported card.

To accept a change: PINNFUSE_UPDATE_GOLDEN=1 pytest tests/kernels/test_grid_source.py
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pinnfuse import Grid
from pinnfuse.grid import Dirichlet
from pinnfuse.grid.linear import lay_out
from pinnfuse.grid.operators import _gradient, _laplacian
from pinnfuse.grid.sampling import _sampling
from pinnfuse.grid.transport import _convection, _diffusion
from pinnfuse.kernels.grid.flow_source import generate as generate_flow
from pinnfuse.kernels.grid.sample_source import generate as generate_sampling
from pinnfuse.kernels.grid.source import generate

GOLDEN = Path(__file__).parent / "golden"
TORUS = Grid("x y", 0.5, boundary="periodic")
WALLS = Grid("x", 0.5, boundary=Dirichlet(1.0))
TEXTS = {
    "laplacian_torus": lambda: generate(lay_out(_laplacian(TORUS, 2), (32, 32), True)[0]),
    "gradient_walls": lambda: generate(lay_out(_gradient(WALLS, 2), (32,), True)[0]),
    "upwind3": lambda: generate_flow(_convection(TORUS, "upwind3", "advective", 2).flow),
    "diffusion_walls": lambda: generate_flow(_diffusion(WALLS, 2).flow),
    "sample_bilinear_walls": lambda: generate_sampling(_sampling(WALLS, (32,), "bilinear")[0]),
    "sample_bicubic_torus": lambda: generate_sampling(_sampling(TORUS, (32, 32), "bicubic")[0]),
}

SCRIPT = """
import json, sys
from dataclasses import asdict
from pinnfuse import Grid
from pinnfuse.grid.linear import lay_out
from pinnfuse.grid.operators import _laplacian
from pinnfuse.grid.sampling import _sampling
from pinnfuse.grid.transport import _convection, _diffusion
from pinnfuse.kernels.grid.offline import resources

capability, boundary, scheme, dtype = json.loads(sys.argv[1])
grid = Grid("x" if dtype == "fp64" else "x y", 0.5, boundary=boundary)
if scheme is None:
    operator = lay_out(_laplacian(grid, 2), (64, 64), True)[0]
elif scheme == "diffusion":
    operator = _diffusion(grid, 2).flow
elif scheme == "bicubic":
    operator = _sampling(grid, (64,) * grid.dimension, scheme)[0]
else:
    operator = _convection(grid, scheme, "advective", 2).flow
print(json.dumps([asdict(r) for r in resources(operator, capability, dtype)]))
"""


@pytest.mark.parametrize("name", TEXTS)
def test_golden(name):
    path = GOLDEN / f"grid_{name}.expected"
    text = TEXTS[name]()
    if os.environ.get("PINNFUSE_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_spacing_and_walls_numbers_are_not_in_the_text():
    """Another spacing, order of magnitude or wall value compiles nothing new; the numbers travel in a tensor."""
    texts = {
        generate(lay_out(_laplacian(Grid("x y", h, boundary=Dirichlet(value)), 2), (n, 32), True)[0])
        for h, value, n in ((0.5, 1.0, 32), (0.25, 3.0, 64))
    }
    assert len(texts) == 1


@pytest.mark.parametrize(
    "case",
    [
        (80, "dirichlet", None, "bf16"),
        (100, "periodic", "upwind1", "fp32"),
        (90, "dirichlet", "upwind3", "fp64"),
        (90, "dirichlet", "upwind3", "fp32"),
        (90, "dirichlet", "weno5", "fp32"),
        (100, "dirichlet", "diffusion", "fp64"),
        (80, "dirichlet", "bicubic", "fp64"),
    ],
    ids=str,
)
def test_compiles_without_a_card(case, tmp_path, root):
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(case)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for row in json.loads(done.stdout):
        assert 0 < row["registers"] <= 255
        if case[3] == "fp32":  # rows at walls share the kernel, and their registers must not slow the interior down
            bound = 80 if (case[2], row["kernel"]) == ("upwind3", "backward_kernel") else 144
            assert row["registers"] <= bound, row
        assert row["stack"] <= (256 if case[3] == "fp64" else 32), row  # doubles take two registers
