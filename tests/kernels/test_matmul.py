"""The product kernel against float64, with strides, masks, epilogues and both derivatives."""

import os
import subprocess
import sys

import pytest
import torch

from pinnfuse.kernels.matmul import matmul

REFERENCE = {"identity": lambda z: z, "tanh": torch.tanh, "relu": torch.relu}


def operands(where, m=37, k=21, n=50, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(2 * m, k, generator=generator, dtype=torch.float64)
    turned = torch.randn(n, k, generator=generator, dtype=torch.float64)
    return wide.to(where, dtype)[::2], turned.to(where, dtype).T, torch.randn(n, dtype=dtype).to(where)


@pytest.mark.parametrize("activation", REFERENCE)
@pytest.mark.parametrize("add", ["none", "row", "matrix", "expanded"])
def test_values_with_odd_strides(where, add, activation):
    a, b, row = operands(where)
    d = {
        "none": None,
        "row": row,
        "matrix": torch.randn(37, 50).double().to(where),
        "expanded": row[:1].expand(37, 50),
    }[add]
    truth = REFERENCE[activation](a @ b + (0 if d is None else d))
    assert torch.allclose(matmul(a, b, d, activation), truth, atol=1e-12)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_other_dtypes(where, dtype, bound):
    if dtype == torch.bfloat16 and where.type == "cpu":
        pytest.skip("Triton's interpreter multiplies the bits of bfloat16 as integers")
    a, b, d = operands(where, dtype=dtype)
    truth = a.double() @ b.double() + d.double()
    found = matmul(a, b, d)
    assert found.dtype == dtype
    assert (found.double() - truth).norm() < bound * truth.norm()


@pytest.mark.parametrize("activation", REFERENCE)
def test_derivatives(where, activation):
    a, b, d = (t.clone().requires_grad_() for t in operands(where, 2, 3, 2))
    assert torch.autograd.gradcheck(lambda *t: matmul(*t, activation), (a, b, d))
    if activation == "tanh":
        assert torch.autograd.gradgradcheck(lambda *t: matmul(*t, activation), (a, b, d))


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (0, 3, 4), (33, 65, 1), (3, 0, 4)])
def test_odd_sizes(where, m, k, n):
    a, b = torch.randn(m, k).double().to(where), torch.randn(k, n).double().to(where)
    assert torch.allclose(matmul(a, b), a @ b, atol=1e-12)


@pytest.mark.gpu
def test_large_products_are_float32_accurate(where):
    x = torch.randn(1000, 700, device=where)
    truth = x.double() @ x.double().T
    assert (matmul(x, x.T).double() - truth).norm() < 2e-6 * truth.norm()
    saturated = matmul(100 * x, x.T, None, "tanh")
    assert bool(torch.isfinite(saturated).all())


SCRIPT = """
import sys, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from pinnfuse.kernels.matmul import matmul_kernel
import triton.language as tl
names = matmul_kernel.arg_names
for kind, size in (("fp32", (128, 128, 32)), ("bf16", (32, 32, 32)), ("fp64", (32, 32, 16))):
    double = kind == "fp64"
    constants = dict(ADD=True, ACTIVATION=1, PRODUCT="ieee" if double else "tf32x3", GROUP=8,
        SUM=tl.float64 if double else tl.float32, **dict(zip(("BM", "BN", "BK"), size)))
    signature = {n: "constexpr" if n in constants else f"*{kind}" if n.endswith("_ptr") else "i32" for n in names}
    source = ASTSource(matmul_kernel, signature, {(names.index(n),): v for n, v in constants.items()})
    options = {"num_warps": 8 if size[0] == 128 else 4}
    assert triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32), options=options).asm["cubin"]
"""


@pytest.mark.parametrize("capability", [80, 90, 100])
def test_it_compiles_for_every_architecture(capability, tmp_path, pytestconfig):
    environment = os.environ | {
        "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(pytestconfig.rootpath)
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(capability)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
