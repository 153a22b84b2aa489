r"""Gluon source of the two products of a hidden layer for many channels of second order: looped.py's rules, on Hopper.

One tangent is in registers at a time; the blocks of all channels pass through the ring one after another. Backward,
the blocks come in groups of one channel's jets and the operand of the channel that is needed next to them:
(a_0, operator), (a_i, tangent i) .., (a_D, value). With x = a_i, b = abar_i, base = a_0 and q = c_i x abar_D, for tanh

    zbar_i = b - base (base b + 4 q),      zbar_0 += -2 x (base b + q)

and likewise for sigmoid: over the loop only base, abar_D and the sum zbar_0 stay in registers.
"""

from __future__ import annotations

from pinnfuse.jets.space import ChannelSpace
from pinnfuse.kernels.jets.channels import ACTIVATIONS, POLYNOMIAL
from pinnfuse.kernels.jets.hopper import HEAD
from pinnfuse.kernels.jets.hopper_ring import PROLOGUE, fetch_next, over_tiles
from pinnfuse.kernels.jets.looped import Run, inputs, over, runs
from pinnfuse.kernels.jets.pieces import indent
from pinnfuse.kernels.jets.spec import Spec

ADJOINTS = {  # y and what is added to y0, of a tangent and of value or operator (given b, x, base, q)
    "tanh": (
        ("b - base * (base * b + 4.0 * q)", "-2.0 * x * (base * b + q)"),
        ("b - base * (base * b)", "-2.0 * base * x * b"),
    ),
    "sigmoid": (
        ("base * (b - base * b - 4.0 * q) + 2.0 * q", "x * (b - 2.0 * (base * b + q))"),
        ("base * (b - base * b)", "x * (b - 2.0 * base * b)"),
    ),
}


def loops_on_hopper(space: ChannelSpace, activations: tuple[str, ...]) -> bool:
    """Whether the looped kernels have a Hopper version: one operator, and slopes that follow from the stored jets."""
    return len(space.operators) == 1 and all(name in POLYNOMIAL for name in activations)


def generate_hopper_looped(spec: Spec) -> str:
    """The module's text: `forward_kernel` and `backward_kernel` with the arguments of hopper.py's."""
    parts = (HEAD, fetches(len(spec.space) - 1), _forward(spec), _backward(spec))
    return "\n\n".join(part.strip("\n") + "\n" for part in parts)


_FETCH = """
@gluon.jit
def fetch_{name}(
    {arguments}
):
    NB: gl.constexpr = H // 64
    {count}
    if q >= {items}:
        q -= {items}
        tile += {stride}
    if tile < tiles:
{place}
        fetch(ring, slot, p + pieces, part, PARTS)
    async_copy.commit_group()
"""
_FORWARD = "        p = i_ptr + {k} * channel + tile.to(gl.int64) * 64 * H + q % NB * 64"
_BACKWARD = """        base = tile.to(gl.int64) * 64 * H
        group = q // (NB + 1)
        place = q % (NB + 1)
{own}        k = group
        if group == 0:
            k = group + {last}
        if group == {last}:
            k = group - {last}
        p = i_ptr + k * channel + base + (place - 1) * 64
        if place == 0:
            p = a_ptr + group * channel + base + nb * 64"""
_OWN = "        if {k} > 0:\n            {k} += start - 1\n"


def fetches(last: int, shared: bool = False) -> str:
    """`fetch_forward` and `fetch_backward`: item q of a tile, or of the next tile of the program, goes to the ring.

    Args:
        last: channel of the operator.
        shared: a program has only `items` of them, the value's and those of the tangents from `start` on
            (hopper_grouped.py).
    """
    tensors = "i_ptr, a_ptr, pieces, channel, part, tiles, nb, H: gl.constexpr,"
    if shared:
        arguments = f"ring, slot, q, tile, start, items, {tensors}\n    PARTS: gl.constexpr, STRIDE"
        counts = ("q += 0 * items  # not a constant any more, which no branch may change",) * 2
        items, stride = "items", "STRIDE"
        forward = f"        k = q // NB\n{_OWN.format(k='k')}{_FORWARD.format(k='k')}"
    else:
        arguments = f"ring, slot, q, tile, {tensors} PARTS: gl.constexpr"
        counts = (f"ITEMS: gl.constexpr = {last} * NB + NB", f"ITEMS: gl.constexpr = ({last} + 1) * (NB + 1)")
        items, stride = "ITEMS", "gl.num_programs(0) // NB"
        forward = _FORWARD.format(k="(q // NB)")
    backward = _BACKWARD.format(last=last, own=_OWN.format(k="group") if shared else "")
    return "\n".join(
        _FETCH.format(name=name, arguments=arguments, count=count, items=items, stride=stride, place=place)
        for name, count, place in zip(("forward", "backward"), counts, (forward, backward), strict=True)
    )


ZEROS = "gl.zeros([64, 64], gl.float32, layout=product_layout(WARPS))"


def product(name: str, k: object, q: str, transposed: bool) -> list[str]:
    """`name` = the product of channel k, whose blocks are the items q + kb of the ring."""
    scale = "kb * NB + nb" if transposed else "nb * NB + kb"
    return [
        f"{name} = {ZEROS}",
        "for kb in range(NB):",
        "    none = opaque_zero(tile, kb)",
        f"    scale = gl.load(w_scale_ptr + {scale})",
        f"    scale_i = gl.load(i_scale_ptr + ({k} * tiles + tile) * NB + kb)",
        *(f"    {line}" for line in fetch_next(transposed, f"{q} + kb")),
        f"    t = start_ring_product(ring, slot + none, wb, kb, NB, PARTS, {transposed}, WARPS)",
        "    t = finish_ring_product(t)",
        f"    {name} += t * (scale_i * scale)",
        "    slot = step_ring(slot, RING)",
    ]


def jets(name: str, group: object, q: str = "") -> list[str]:
    """`name` = the jets of a group's channel, the group's first item of the ring, or item q."""
    return [
        f"scale = gl.load(a_scale_ptr + ({group} * tiles + tile) * NB + nb)",
        *fetch_next(True, q or f"{group} * (NB + 1)"),
        f"{name} = get_from_ring(ring, slot, scale, PARTS, WARPS)",
        "slot = step_ring(slot, RING)",
    ]


def put(pointer: str, value: str, k: object) -> str:
    scale = f"{pointer}_scale_ptr + ({k} * tiles + tile) * NB + nb"
    return f"put_block({pointer}_ptr + {k} * channel + offset, part, {scale}, {value}, PARTS, WARPS)"


def coefficients(space: ChannelSpace) -> list[str]:
    return [f"k{i} = gl.load(c_ptr + {i})" for i in range(len(space.coefficients))]


def _forward(spec: Spec) -> str:
    space, last = spec.space, len(spec.space) - 1
    body = ["offset = base + nb * 64 + at", *product("z0", 0, "0", False), "z0 += gl.load(b_ptr + h)[None, :]"]
    for i, name in enumerate(spec.activations):
        prepare, derivatives = ACTIVATIONS[name]
        lines = [*prepare, *(f"s{q} = {derivatives[q]}" for q in range(3))]
        body += [f"if ACTIVATION == {i}:", *(f"    {line}" for line in lines)]
    body += [put("a", "s0", 0), f"acc = {ZEROS}"]
    for run in runs(space):
        square = [f"acc += ({run.weights[0]}) * z * z"] if run.weights[0] else []
        body += over(run, lambda k, _, s=square: [*product("z", k, f"{k} * NB", False), put("a", "s1 * z", k), *s])  # type: ignore
    body += [*product("z", last, f"{last} * NB", False), put("a", "s1 * z + s2 * acc", last)]
    head = PROLOGUE.format(transposed=False, channels=last + 1).split("\n") + coefficients(space)
    return f"""
@gluon.jit(do_not_specialize=["tiles"])
def forward_kernel(
    i_ptr, i_scale_ptr, w_ptr, w_scale_ptr, b_ptr, c_ptr, a_ptr, a_scale_ptr, s_ptr, tiles, weight_stride,
    ACTIVATION: gl.constexpr, SAVE: gl.constexpr, H: gl.constexpr, PARTS: gl.constexpr, RING: gl.constexpr,
    WARPS: gl.constexpr,
):
{indent(head + over_tiles(body, False), 1)}
"""


def _backward(spec: Spec) -> str:
    space = spec.space
    body = ["offset = base + nb * 64 + at", "pb = part_ptr + tile.to(gl.int64) * columns"]
    body += [f"n = first + tile * 64 + {ROWS}", "live = n < points"]
    for i, name in enumerate(spec.activations):
        body += [f"if ACTIVATION == {i}:", *(f"    {line}" for line in _adjoint(space, name))]
    head = PROLOGUE.format(transposed=True, channels=len(space)).split("\n") + coefficients(space)
    return f"""
@gluon.jit(do_not_specialize=["points", "first", "tiles", "again", "columns"])
def backward_kernel(
    x_ptr, i_ptr, i_scale_ptr, w_ptr, w_scale_ptr, b_ptr, c_ptr, a_ptr, a_scale_ptr, s_ptr, z_ptr, z_scale_ptr,
    part_ptr,
    points, first, tiles, again, columns, weight_stride,
    FIRST: gl.constexpr, ACTIVATION: gl.constexpr, H: gl.constexpr, PARTS: gl.constexpr, RING: gl.constexpr,
    WARPS: gl.constexpr,
):
{indent(head + over_tiles(body, True), 1)}
"""


ROWS = "gl.arange(0, 64, layout=gl.SliceLayout(1, product_layout(WARPS)))"


def _adjoint(space: ChannelSpace, name: str) -> list[str]:
    """abar -> zbar, stored or summed up; `bar` is the operator's b, then its y."""
    last = len(space) - 1
    tangent, other = ADJOINTS[name]
    stop = "(NB + 1) + 1"
    lines = [*jets("base", 0), *product("bar", last, "1", True), f"y0 = {ZEROS}"]
    for run in runs(space):

        def body(k: object, coordinate: str, run: Run = run) -> list[str]:
            y, more = tangent if run.weights[0] else other
            q = [f"q = ({run.weights[0]}) * x * bar"] if run.weights[0] else []
            inner = [*jets("x", k), *product("b", k, f"{k} * {stop}", True), *q, f"y0 += {more}", f"y = {y}"]
            sums = f"add_to(pb + (1 + {coordinate}) * H + h, gl.sum(y, 0), again)"
            return [*inner, *_store(k), "if FIRST == 1:", f"    {sums}"]

        lines += over(run, body)
    y, more = other
    return [*lines, *jets("x", last), *last_sums(space, last, y, more, f"{last} * {stop}")]


def last_sums(space: ChannelSpace, last: int, y: str, more: str, q: str) -> list[str]:
    """The operator, with its jets in `x`, and the value, whose blocks are the items q .. of the ring."""
    lines = ["b = bar", f"y0 += {more}", f"y = {y}", *_store(last), "bar = y"]
    lines += [*product("b", 0, q, True), f"y0 += {y}", "y = y0", *_store(0)]
    lines += ["add_to(pb + h, gl.sum(y0, 0), again)", "if FIRST == 1:"]
    zero = "gl.zeros([64], gl.float32, layout=gl.SliceLayout(0, product_layout(WARPS)))"
    ends = [line.replace("g0 * bar0", "bar").replace("tl.zeros([BLOCK], dtype)", zero) for line in inputs(space)]
    return [*lines, *(f"    {line.replace('tl.', 'gl.')}" for line in ends)]


def _store(k: object) -> list[str]:
    return ["if FIRST == 0:", f"    {put('z', 'y', k)}"]
