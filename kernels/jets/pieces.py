"""Lines of Triton that several kernels share: tiles and loads, scaled stores, activations, sums over points."""

from __future__ import annotations

from pinnfuse.jets.space import ChannelSpace
from pinnfuse.kernels.jets.channels import POLYNOMIAL, compose, slope_of_polynomial
from pinnfuse.kernels.jets.spec import Spec

COMMON = ", ".join(f"{name}: tl.constexpr" for name in ("H", "ROWS", "BLOCK", "PARTS", "ONCE", "PERMUTED"))
INTEGERS = '["points", "first", "tiles", "again", "columns"]'


def indent(lines: list[str], levels: int) -> str:
    return "\n".join("    " * levels + line for entry in lines for line in entry.split("\n"))


def maxima(count: int) -> str:
    x, y = [f"x{k}" for k in range(count)], [f"y{k}" for k in range(count)]
    pairs = ", ".join(f"tl.maximum({a}, {b})" for a, b in zip(x, y, strict=True))
    each = ", ".join(f"tl.max(tl.max(tl.abs({a}), 1), 0)" for a in x)
    once = ", ".join(f"tl.abs({a})" for a in x)
    if count == 1:
        return f"@triton.jit\ndef maxima(x0):\n    return {each}\n"
    return f'''
@triton.jit
def _larger({", ".join(x + y)}):
    return {pairs}


@triton.jit
def maxima({", ".join(x)}, ONCE: tl.constexpr):
    """Largest magnitude of each block; ONCE: by one joint reduction"""
    if ONCE:
        return tl.reduce(({once}), None, _larger)
    else:
        return {each}
'''


def column_sums(counts: set[int]) -> str:
    """`sums<n>`: sums over the rows of n blocks; ONCE: by one joint reduction."""
    parts = []
    for n in sorted(counts - {1}):
        x, y = [f"x{i}" for i in range(n)], [f"y{i}" for i in range(n)]
        parts.append(f"""
@triton.jit
def _plus{n}({", ".join(x + y)}):
    return {", ".join(f"{a} + {b}" for a, b in zip(x, y, strict=True))}


@triton.jit
def sums{n}({", ".join(x)}, ONCE: tl.constexpr):
    if ONCE:
        return tl.reduce(({", ".join(x)}), 0, _plus{n})
    else:
        return {", ".join(f"tl.sum({a}, 0)" for a in x)}
""")
    return "\n".join(parts)


_TILE = """NB: tl.constexpr = H // BLOCK
dtype = b_ptr.dtype.element_ty
tile = tl.program_id(0) // NB
nb = tl.program_id(0) % NB
row = tile * ROWS + tl.arange(0, ROWS)
h = units(nb * BLOCK, BLOCK, PERMUTED)
channel = tiles.to(tl.int64) * ROWS * H
part = {channels} * channel
offset = row[:, None].to(tl.int64) * H + (nb * BLOCK + tl.arange(0, BLOCK))[None, :]"""


def tile(space: ChannelSpace) -> list[str]:
    return _TILE.format(channels=len(space)).split("\n")


def load_coefficients(space: ChannelSpace) -> list[str]:
    return [f"k{i} = tl.load(c_ptr + {i})" for i in range(len(space.coefficients))]


def load_points(dimension: int) -> list[str]:
    return [
        "n = first + row",
        "live = n < points",
        *(
            f"x{j} = tl.load(x_ptr + n.to(tl.int64) * {dimension} + {j}, mask=live, other=0.0)"
            for j in range(dimension)
        ),
    ]


def scale_slot(k: int, block: str = "nb") -> str:
    """Where the scale of a block of channel k lies."""
    return f"({k} * tiles + tile) * NB + {block}"


def store_block(count: int, name: str, pointer: str) -> list[str]:
    """Store one block of every channel."""
    values = [f"{name}{k}" for k in range(count)]
    largest = ", ".join(f"m{k}" for k in range(count))
    once = ", ONCE" if count > 1 else ""
    return [
        "if PARTS > 0:",
        f"    {largest} = maxima({', '.join(values)}{once})",
        *(
            f"    put({pointer}_ptr + {k} * channel + offset, part, "
            f"{pointer}_scale_ptr + {scale_slot(k)}, {v}, m{k}, PARTS)"
            for k, v in enumerate(values)
        ),
        "else:",
        *(f"    tl.store({pointer}_ptr + {k} * channel + offset, {v})" for k, v in enumerate(values)),
    ]


def load_channel(k: int) -> str:
    return f"a{k} = get(a_ptr + {k} * channel + offset, part, a_scale_ptr + {scale_slot(k)}, PARTS)"


def activate(spec: Spec) -> list[str]:
    """z -> a, for the activation with number ACTIVATION."""
    lines: list[str] = []
    for i, name in enumerate(spec.activations):
        body = compose(spec.space, name)
        if name not in POLYNOMIAL:
            body += ["if SAVE:"] + [
                f"    tl.store(s_ptr + {k} * channel + offset, z{k})" for k in range(len(spec.space))
            ]
        lines += [f"if ACTIVATION == {i}:", *(f"    {line}" for line in body)]
    return lines


def slopes_of(spec: Spec, i: int) -> dict[int, list[str]]:
    """Lines that make `g<k>` known."""
    space, name = spec.space, spec.activations[i]
    if name in POLYNOMIAL:
        return {k: [load_channel(k), slope_of_polynomial(space, name, k)] for k in range(len(space))}
    lines = compose(space, name, result="g", shift=1)
    split = next(j for j, line in enumerate(lines) if line.startswith("g0"))
    slopes = {0: ["z0 = tl.load(s_ptr + offset)", *lines[: split + 1]]}
    for k in range(1, len(space)):
        slopes[k] = [f"z{k} = tl.load(s_ptr + {k} * channel + offset)", lines[split + k]]
    return slopes


def joint_sums(names: list[str], blocks: list[str]) -> list[str]:
    """`names` = sums over the rows of `blocks`."""
    if len(blocks) == 1:
        return [f"{names[0]} = tl.sum({blocks[0]}, 0)"]
    return [f"{', '.join(names)} = sums{len(blocks)}({', '.join(blocks)}, ONCE)"]


def first_layer(space: ChannelSpace) -> list[str]:
    """Below: sums over a tile of the bias of a hidden layer, and of the input weights; or the adjoint as it is."""
    names = [f"s{j}" for j in range(space.dimension + 1)]
    joint = joint_sums(names, ["y0", *first_layer_terms(space)])
    stores = [f"add_to(pb + {j} * H + h, {name}, again)" for j, name in enumerate(names)]
    give = [f"tl.store(y_ptr + {k} * channel + offset, y{k})" for k in range(len(space))]
    return [
        "if FIRST == 2:",
        *(f"    {line}" for line in give),
        "elif FIRST == 1:",
        *(f"    {line}" for line in (*joint, *stores)),
        "else:",
        "    add_to(pb + h, tl.sum(y0, 0), again)",
    ]


def first_layer_terms(space: ChannelSpace) -> list[str]:
    """Per coordinate, what summed over points gives the gradient of its column of the input weights."""
    result = []
    for j in range(space.dimension):
        terms = [f"y0 * x{j}[:, None]"]
        for k, seed in enumerate(space.seeds, start=1):
            terms += [f"y{k}" if slot is None else f"k{slot} * y{k}" for jj, slot in seed if jj == j]
        result.append(" + ".join(terms))
    return result
