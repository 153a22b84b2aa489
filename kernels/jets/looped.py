r"""Triton source for many channels of second order: a loop over the tangents, one in registers at a time.

Channels are the value, tangents (first derivatives) and operators with squares of tangents, D = sum_i c_i d_i^2 + b d:
the Laplacian of a Poisson equation in a hundred dimensions. With x_k the channels of z, or of a where s' is a
polynomial of a, forward and adjoint are sums over tangents:

    a_i = s' z_i,   a_D = s' z_D + s'' sum_i c_i z_i^2
    zbar_i = g_0 abar_i + sum_D 2 c_i g_i abar_D,   zbar_D = g_0 abar_D,   zbar_0 = sum_k g_k abar_k

with g the jet of s'(z). Kernels have the names and arguments of source.py's; weight gradients are the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pinnfuse.jets.space import ChannelSpace
from pinnfuse.kernels.jets.channels import ACTIVATIONS, POLYNOMIAL
from pinnfuse.kernels.jets.output import output_kernel
from pinnfuse.kernels.jets.pieces import COMMON, INTEGERS, column_sums, indent, load_coefficients, maxima, tile
from pinnfuse.kernels.jets.pointwise import NotGenerated, pointwise
from pinnfuse.kernels.jets.source import head
from pinnfuse.kernels.jets.spec import Spec

LOOPED_FROM = 11
"""Fewest channels that take the loop: below, all channels of a block stay in registers together."""


def loops(space: ChannelSpace) -> bool:
    """Whether the kernels of this space loop over its tangents."""
    if len(space) < LOOPED_FROM or any(sum(alpha) > 1 for alpha in space.indices):
        return False
    return all(len(set(t.factors)) == 1 and len(t.factors) == 2 for terms in space.composition for t in terms)


@dataclass(frozen=True)
class Run:
    """Tangents `start` .. `stop` - 1: consecutive coordinates from `coordinate`, the same weight in every operator."""

    start: int
    stop: int
    coordinate: int
    weights: tuple[str | None, ...]


def runs(space: ChannelSpace, alone: frozenset[int] = frozenset()) -> list[Run]:
    """The tangents in runs; those in `alone` are runs of one."""
    tangents = len(space.indices) - 1
    result: list[Run] = []
    for k in range(1, tangents + 1):
        coordinate = space.indices[k].index(1)
        weights = []
        for terms in space.composition[tangents + 1 :]:
            mine = [t for t in terms if t.factors == (k, k)]
            codes = [
                f"{float(t.count)!r}" if t.coefficient is None else f"{float(t.count)!r} * k{t.coefficient}"
                for t in mine
            ]
            weights.append(" + ".join(codes) or None)
        last = result[-1] if result else None
        fits = last is not None and (last.weights, last.coordinate + k - last.start) == (tuple(weights), coordinate)
        if last is not None and fits and not {k, last.start} & alone:
            result[-1] = Run(last.start, k + 1, last.coordinate, last.weights)
        else:
            result.append(Run(k, k + 1, coordinate, tuple(weights)))
    return result


def generate_looped(spec: Spec) -> str:
    """The module's text; raises NotGenerated like `generate`."""
    unknown = [name for name in spec.activations if name not in ACTIVATIONS]
    if unknown:
        raise NotGenerated(f"the activation {unknown[0]} has no Triton code")
    code = pointwise(spec.plan, "v" if spec.tail is None else "up") if spec.plan is not None else None
    imports = "from pinnfuse.kernels.jets.primitives import product, put_block  # noqa: F401\n"
    parts = [
        head(spec) + imports,
        maxima(1),
        column_sums({spec.fields}),
        _input(spec),
        _given(spec),
        _forward(spec),
        output_kernel(spec, code, _output_sweep),
        _backward(spec),
    ]
    return "\n\n".join(part.strip("\n") + "\n" for part in parts)


Lines = Callable[[object], list[str]]
"""Code for a channel given as a number, or as the loop's `k`."""


def over(run: Run, body: Callable[[object, str], list[str]]) -> list[str]:
    """`body(k, coordinate)` over a run."""
    if run.stop == run.start + 1:
        return body(run.start, str(run.coordinate))
    inner = body("k", f"(k + {run.coordinate - run.start})")
    return [f"for k in range({run.start}, {run.stop}):", *(f"    {line}" for line in inner)]


def _put(pointer: str, name: str, k: object = "k") -> str:
    """Store a block of channel k."""
    return (
        f"put_block({pointer}_ptr + {k} * channel + offset, part, "
        f"{pointer}_scale_ptr + ({k} * tiles + tile) * NB + nb, {name}, PARTS)"
    )


# -- forward: z of one channel at a time -> a --------------------------------------
def activate(spec: Spec, z: Callable[[object, str | None], list[str]]) -> list[str]:
    """z -> a; `z(k, coordinate)` gives the lines that make `z` known for channel k, with a tangent's coordinate."""
    space, tangents = spec.space, len(spec.space.indices) - 1
    operators = range(len(space.operators))
    lines = [*z(0, None), "z0 = z"]
    for i, name in enumerate(spec.activations):
        prepare, derivatives = ACTIVATIONS[name]
        body = [*prepare, *(f"s{q} = {derivatives[q]}" for q in range(3))]
        lines += [f"if ACTIVATION == {i}:", *(f"    {line}" for line in body)]
    saves = [i for i, name in enumerate(spec.activations) if name not in POLYNOMIAL]

    def save(k: object) -> list[str]:
        condition = " or ".join(f"ACTIVATION == {i}" for i in saves)
        return [f"if SAVE and ({condition}):", f"    tl.store(s_ptr + {k} * channel + offset, z)"] if saves else []

    lines += [*save(0), _put("a", "s0", 0)]
    lines += [f"acc{o} = tl.zeros([ROWS, BLOCK], dtype)" for o in operators]
    for run in runs(space):
        more = [f"acc{o} += ({w}) * z * z" for o, w in enumerate(run.weights) if w]
        lines += over(run, lambda k, j, more=more: [*z(k, j), *save(k), _put("a", "s1 * z", k), *more])  # type: ignore
    for o in operators:
        k = tangents + 1 + o
        lines += [*z(k, None), *save(k), _put("a", f"s1 * z + s2 * acc{o}", k)]
    return lines


def _input(spec: Spec) -> str:
    space, d = spec.space, spec.space.dimension

    def z(k: object, coordinate: str | None) -> list[str]:
        if k == 0:
            return [
                "z = tl.zeros([ROWS, BLOCK], dtype) + tl.load(b_ptr + h)[None, :]",
                f"for j in range({d}):",
                f"    xj = tl.load(x_ptr + n.to(tl.int64) * {d} + j, mask=live, other=0.0)",
                f"    z += xj[:, None] * tl.load(w_ptr + h * {d} + j)[None, :]",
            ]
        if coordinate is not None:
            row = f"tl.load(w_ptr + h * {d} + {coordinate})[None, :]"
        else:
            assert isinstance(k, int)
            row = " + ".join(
                f"tl.load(w_ptr + h * {d} + {j})[None, :]" + ("" if slot is None else f" * k{slot}")
                for j, slot in space.seeds[k - 1]
            )
        return ["z = tl.zeros([ROWS, BLOCK], dtype)" + (f" + {row}" if row else "")]

    position = ["n = first + row", "live = n < points"]
    body = [*tile(space), *load_coefficients(space), *position, *activate(spec, z)]
    return f"""
@triton.jit(do_not_specialize={INTEGERS})
def input_kernel(
    x_ptr, w_ptr, b_ptr, c_ptr, a_ptr, a_scale_ptr, s_ptr, points, first, tiles,
    ACTIVATION: tl.constexpr, SAVE: tl.constexpr, {COMMON},
):
{indent(body, 1)}
"""


def _given(spec: Spec) -> str:
    def z(k: object, coordinate: str | None) -> list[str]:
        return [f"z = tl.load(g_ptr + {k} * channel + offset)"]

    body = [*tile(spec.space), *load_coefficients(spec.space), *activate(spec, z)]
    return f"""
@triton.jit(do_not_specialize={INTEGERS})
def given_kernel(
    g_ptr, b_ptr, c_ptr, a_ptr, a_scale_ptr, s_ptr, tiles,
    ACTIVATION: tl.constexpr, SAVE: tl.constexpr, {COMMON},
):
{indent(body, 1)}
"""


def _product(k: object, transposed: bool) -> str:
    return (
        f"product(i_ptr + {k} * channel, i_scale_ptr + ({k} * tiles + tile) * NB, part, w_ptr, w_scale_ptr, "
        f"weight_stride, row, nb, H, ROWS, BLOCK, STEP, PARTS, {transposed})"
    )


def _forward(spec: Spec) -> str:
    def z(k: object, coordinate: str | None) -> list[str]:
        return [f"z = {_product(k, False)}", *(["z += tl.load(b_ptr + h)[None, :]"] if k == 0 else [])]

    body = [*tile(spec.space), *load_coefficients(spec.space), *activate(spec, z)]
    return f"""
@triton.jit(do_not_specialize={INTEGERS})
def forward_kernel(
    i_ptr, i_scale_ptr, w_ptr, w_scale_ptr, b_ptr, c_ptr, a_ptr, a_scale_ptr, s_ptr, tiles, weight_stride,
    STEP: tl.constexpr, ACTIVATION: tl.constexpr, SAVE: tl.constexpr, {COMMON},
):
{indent(body, 1)}
"""


# -- adjoint: abar of one channel at a time -> zbar --------------------------------------
@dataclass(frozen=True)
class _Slope:
    """The jet g of s'(z) from the channels x: of a for a polynomial, of z else. `tangent` is g_i, `operator` g_D."""

    prepare: list[str]
    tangent: str
    operator: str
    load: Callable[[object], str]


def _slope(name: str) -> _Slope:
    if name in POLYNOMIAL:
        load = "get(a_ptr + {0} * channel + offset, part, a_scale_ptr + ({0} * tiles + tile) * NB + nb, PARTS)".format
        if name == "tanh":
            return _Slope(["g0 = 1.0 - base * base"], "-2.0 * base * x", "-2.0 * (base * x + {0})", load)
        linear = "x * (1.0 - 2.0 * base)"
        return _Slope(["g0 = base - base * base"], linear, linear + " - 2.0 * {0}", load)
    prepare, derivatives = ACTIVATIONS[name]
    lines = ["z0 = base", *prepare, *(f"g{q} = {derivatives[q + 1]}" for q in range(3))]
    return _Slope(lines, "g1 * x", "g1 * x + g2 * {0}", "tl.load(s_ptr + {0} * channel + offset)".format)


def adjoint(spec: Spec, name: str, b: Lines) -> list[str]:
    """abar -> zbar of one activation, stored or summed up. `b(k)`: lines that make `b` known; none where it is zero."""
    space, tangents = spec.space, len(spec.space.indices) - 1
    operators, slope = range(len(space.operators)), _slope(name)
    alone = frozenset() if b("k") else frozenset(k for k in range(1, tangents + 1) if b(k))
    lines = [f"base = {slope.load(0)}", *slope.prepare, "y0 = tl.zeros([ROWS, BLOCK], dtype)"]
    for o in operators:
        lines += [*(b(tangents + 1 + o) or ["b = tl.zeros([ROWS, BLOCK], dtype)"]), f"bar{o} = b"]
        lines += [f"acc{o} = tl.zeros([ROWS, BLOCK], dtype)"]
    for run in runs(space, alone):

        def tangent(k: object, coordinate: str, weights: tuple[str | None, ...] = run.weights) -> list[str]:
            given = b(k)
            body = [f"x = {slope.load(k)}", f"g = {slope.tangent}", *given]
            body += ["y0 += g * b", "y = g0 * b"] if given else ["y = tl.zeros([ROWS, BLOCK], dtype)"]
            for o, w in enumerate(weights):
                body += [f"y += (2.0 * ({w})) * g * bar{o}", f"acc{o} += ({w}) * x * x"] if w else []
            sums = f"add_to(pb + (1 + {coordinate}) * H + h, tl.sum(y, 0), again)"
            return [*body, *store(k), "if FIRST == 1:", f"    {sums}"]

        lines += over(run, tangent)
    for o in operators:
        k = tangents + 1 + o
        lines += [f"x = {slope.load(k)}", f"y0 += ({slope.operator.format(f'acc{o}')}) * bar{o}", f"y = g0 * bar{o}"]
        lines += store(k)
    given = b(0)
    lines += [*given, *(["y0 += g0 * b"] if given else []), "y = y0", *store(0)]
    return [*lines, "add_to(pb + h, tl.sum(y0, 0), again)", "if FIRST == 1:", *(f"    {x}" for x in inputs(space))]


def store(k: object) -> list[str]:
    """zbar of channel k: as a layer's (FIRST is 0), or as plain numbers (2)."""
    plain = f"tl.store(y_ptr + {k} * channel + offset, y)"
    return ["if FIRST == 0:", f"    {_put('z', 'y', k)}", "if FIRST == 2:", f"    {plain}"]


def inputs(space: ChannelSpace) -> list[str]:
    """Sums for the input weights in two sets of [d, H]: of tangents (written with them), and of value and operators."""
    d, tangents = space.dimension, len(space.indices) - 1
    carried = {alpha.index(1) for alpha in space.indices[1:]}
    lines = [f"tl.store(pb + {1 + j} * H + h, tl.zeros([BLOCK], dtype))" for j in range(d) if j not in carried]
    seeded: dict[int, str] = {}
    for o, seed in enumerate(space.seeds[tangents:]):
        for j, slot in seed:
            seeded[j] = seeded.get(j, "") + f" + g0 * bar{o}" + ("" if slot is None else f" * k{slot}")

    def total(j: object, more: str) -> list[str]:
        load = f"xj = tl.load(x_ptr + n.to(tl.int64) * {d} + {j}, mask=live, other=0.0)"
        return [load, f"add_to(pb + ({1 + d} + {j}) * H + h, tl.sum(y0 * xj[:, None]{more}, 0), again)"]

    start = 0
    for stop in [*sorted(seeded), d]:
        if stop > start:
            lines += [f"for j in range({start}, {stop}):", *(f"    {line}" for line in total("j", ""))]
        lines += total(stop, seeded[stop]) if stop in seeded else []
        start = stop + 1
    return lines


def _by_activation(spec: Spec, b: Lines) -> list[str]:
    lines: list[str] = []
    for i, name in enumerate(spec.activations):
        lines += [f"if ACTIVATION == {i}:", *(f"    {line}" for line in adjoint(spec, name, b))]
    return lines


def _output_sweep(spec: Spec, by_channel: dict[int, list[tuple[int, int]]]) -> tuple[list[str], list[str]]:
    def b(k: object) -> list[str]:
        read = by_channel.get(k, []) if isinstance(k, int) else []
        if not read:
            return []
        load = f"a = get(a_ptr + {k} * channel + offset, part, a_scale_ptr + ({k} * tiles + tile) * NB + nb, PARTS)"
        code = " + ".join(f"v{i}[:, None] * u{f}" for i, f in read)
        return [load, *(f"gu{f} += v{i}[:, None] * a" for i, f in read), f"b = {code}"]

    return _by_activation(spec, b), []


def _backward(spec: Spec) -> str:
    body = [*tile(spec.space), *load_coefficients(spec.space), "n = first + row", "live = n < points"]
    body += ["pb = part_ptr + tile.to(tl.int64) * columns"]
    body += _by_activation(spec, lambda k: [f"b = {_product(k, True)}"])
    return f"""
@triton.jit(do_not_specialize={INTEGERS})
def backward_kernel(
    x_ptr, i_ptr, i_scale_ptr, w_ptr, w_scale_ptr, b_ptr, c_ptr, a_ptr, a_scale_ptr, s_ptr, z_ptr, z_scale_ptr,
    y_ptr, part_ptr, points, first, tiles, again, columns, weight_stride,
    STEP: tl.constexpr, FIRST: tl.constexpr, ACTIVATION: tl.constexpr, {COMMON},
):
{indent(body, 1)}
"""
