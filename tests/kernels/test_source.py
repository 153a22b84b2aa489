"""The generated text itself: a change of the generator is reviewed as a change of kernels.

To accept one: PINNFUSE_UPDATE_GOLDEN=1 pytest tests/kernels/test_source.py
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sympy

from pinnfuse import models
from pinnfuse.jets import recognise
from pinnfuse.jets.plan import plan
from pinnfuse.kernels.jets import group, pointwise
from pinnfuse.kernels.jets.hopper import generate_hopper
from pinnfuse.kernels.jets.hopper_fused import generate_fused
from pinnfuse.kernels.jets.schedule import Pointwise, schedule
from pinnfuse.kernels.jets.source import generate
from pinnfuse.kernels.jets.spec import Spec

from .cases import PDES  # noqa: TID251 - this folder, not the library's

GOLDEN = Path(__file__).parent / "golden"


def generate_ring(of: Spec) -> str:
    return generate_hopper(of, ring=True)


def spec(name: str, activation: str) -> Spec:
    p = plan(PDES[name])
    return Spec(p.space, (activation,), p.outputs, len(p.pde.fields), p)


@pytest.mark.parametrize(
    ("name", "activation", "generator"),
    [
        ("burgers", "tanh", generate),
        ("burgers", "tanh", generate_hopper),
        ("burgers", "tanh", generate_ring),
        ("burgers", "tanh", generate_fused),
        ("kdv", "silu", generate),
    ],
)
def test_golden(name, activation, generator):
    path = GOLDEN / f"{name}_{activation}_{generator.__name__}.expected"
    text = generator(spec(name, activation))
    if os.environ.get("PINNFUSE_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def gated(name: str) -> str:
    """A layer of a modified MLP."""
    net = models.ModifiedMLP(2, 1, width=32, depth=2)
    nodes = schedule(recognise(net, 2).program, None).nodes
    groups = [node.group for node in nodes if isinstance(node, Pointwise)]
    return group.generate(plan(PDES[name]).space, groups[1])


def test_golden_group():
    path, text = GOLDEN / "burgers_gated_group.expected", gated("burgers")
    if os.environ.get("PINNFUSE_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_same_text_in_every_process(root):
    script = (
        "from tests.kernels.test_source import *\nimport hashlib\n"
        "text = generate(spec('navier_stokes', 'gelu')) + gated('kdv')\n"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    texts = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        texts.add(done.stdout)
    assert len(texts) == 1


def test_numbers_have_no_name():
    """`e0 = 1.57...` would be float32 to Triton, also in a float64 kernel."""
    x, y = sympy.symbols("x y", real=True)
    shared = [sympy.sin(sympy.pi * x / 2), sympy.cos(sympy.pi * y / 2)]  # pi/2 is a common part
    lines = pointwise.shared_code(shared, {x: "x", y: "y"}, "e", ("a", "b"))
    assert any("sin" in line for line in lines)
    for line in lines:
        name, value = line.split(" = ")
        assert re.search(r"[a-z]", value), line
