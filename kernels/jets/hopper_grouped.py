r"""hopper_looped.py with the tangents of a tile shared among GROUPS programs, for chunks of too few tiles for a card.

In a hundred dimensions memory holds some sixty tiles at a time, and a card runs 264 programs. A program takes the value
(forward) or the operator (backward) and its own tangents; what is a sum over tangents,

    sum_i c_i z_i^2   (forward),      y0 = sum_i g_i abar_i   (backward),

it leaves in memory, [GROUPS, tiles 64, H], and a second kernel adds these up in a fixed order and does the rest: the
operator forward, operator and value backward.
"""

from __future__ import annotations

from pinnfuse.kernels.jets.channels import ACTIVATIONS
from pinnfuse.kernels.jets.hopper import HEAD
from pinnfuse.kernels.jets.hopper_looped import (
    ADJOINTS,
    ROWS,
    ZEROS,
    coefficients,
    fetches,
    jets,
    last_sums,
    product,
    put,
)
from pinnfuse.kernels.jets.hopper_ring import PROLOGUE
from pinnfuse.kernels.jets.looped import runs
from pinnfuse.kernels.jets.pieces import indent
from pinnfuse.kernels.jets.spec import Spec


def groups_on_hopper(spec: Spec) -> bool:
    """Whether tangents can be shared: all have one weight in the operator, as in a Laplacian."""
    found = runs(spec.space)
    return len(found) == 1 and found[0].weights[0] is not None


def generate_hopper_grouped(spec: Spec) -> str:
    """The module's text: `forward_kernel`, `forward_end_kernel`, `backward_kernel`, `backward_end_kernel`."""
    parts = [HEAD, fetches(len(spec.space) - 1, shared=True)]
    parts += [_forward(spec, end) for end in (False, True)] + [_backward(spec, end) for end in (False, True)]
    return "\n\n".join(part.strip("\n") + "\n" for part in parts)


def _shared(lines: list[str]) -> list[str]:
    """Copies to the ring know which channels a program has."""
    return [
        x.replace("tile, i_ptr", "tile, start, items, i_ptr").replace("H, PARTS)", "H, PARTS, STRIDE)") for x in lines
    ]


def _head(spec: Spec, end: bool, transposed: bool) -> list[str]:
    last = len(spec.space) - 1
    lines = PROLOGUE.format(transposed=transposed, channels=last + 1).split("\n") + coefficients(spec.space)
    each = "(NB + 1)" if transposed else "NB"
    if end:
        return [*lines, f"start = {last}", f"items = 2 * {each}", "lane = gl.program_id(0) // NB"] + [
            "STRIDE = gl.num_programs(0) // NB"
        ]
    lines += ["g = gl.program_id(0) // NB % GROUPS", "lane = gl.program_id(0) // (NB * GROUPS)"]
    lines += [f"start = 1 + g * {last - 1} // GROUPS", f"stop = 1 + (g + 1) * {last - 1} // GROUPS"]
    return [*lines, f"items = (stop - start + 1) * {each}", "STRIDE = gl.num_programs(0) // (NB * GROUPS)"]


def _over_tiles(body: list[str], transposed: bool) -> list[str]:
    name = "fetch_backward" if transposed else "fetch_forward"
    return _shared(
        [
            "tile = lane",
            "for ahead in gl.static_range(RING - 1):",
            f"    {name}(ring, ahead, ahead, tile, i_ptr, a_ptr, to, channel, part, tiles, nb, H, PARTS)",
            "slot = 0",
            "for tile in range(lane, tiles, STRIDE):",
            "    base = tile.to(gl.int64) * 64 * H",
            "    offset = base + nb * 64 + at",
            *(f"    {line}" for line in body),
        ]
    )


_LEAVE = "gl.store(g_ptr + g * channel + offset, to_memory({0}, WARPS))"


def _collect(name: str) -> list[str]:
    """`name` = the sum of what the groups left."""
    load = "from_memory(gl.load(g_ptr + g * channel + offset), product_layout(WARPS))"
    return [f"{name} = {ZEROS}", "for g in range(GROUPS):", f"    {name} += {load}"]


def _forward(spec: Spec, end: bool) -> str:
    last, weight = len(spec.space) - 1, runs(spec.space)[0].weights[0]
    body = [*product("z0", 0, "0", False), "z0 += gl.load(b_ptr + h)[None, :]"]
    for i, name in enumerate(spec.activations):
        prepare, derivatives = ACTIVATIONS[name]
        lines = [*prepare, *(f"s{q} = {derivatives[q]}" for q in range(3))]
        body += [f"if ACTIVATION == {i}:", *(f"    {line}" for line in lines)]
    if end:
        body += [*product("z", last, "NB", False), *_collect("acc"), put("a", "s1 * z + s2 * acc", last)]
    else:
        inner = [
            *product("z", "k", "(k - start + 1) * NB", False),
            put("a", "s1 * z", "k"),
            f"acc += ({weight}) * z * z",
        ]
        body += ["if g == 0:", f"    {put('a', 's0', 0)}", f"acc = {ZEROS}"]
        body += ["for k in range(start, stop):", *(f"    {line}" for line in inner), _LEAVE.format("acc")]
    return f"""
@gluon.jit(do_not_specialize=["tiles"])
def {"forward_end_kernel" if end else "forward_kernel"}(
    i_ptr, i_scale_ptr, w_ptr, w_scale_ptr, b_ptr, c_ptr, a_ptr, a_scale_ptr, s_ptr, g_ptr, tiles, weight_stride,
    ACTIVATION: gl.constexpr, SAVE: gl.constexpr, H: gl.constexpr, PARTS: gl.constexpr, RING: gl.constexpr,
    WARPS: gl.constexpr, GROUPS: gl.constexpr,
):
{indent(_head(spec, end, False) + _over_tiles(body, False), 1)}
"""


def _backward(spec: Spec, end: bool) -> str:
    body = ["pb = part_ptr + tile.to(gl.int64) * columns", f"n = first + tile * 64 + {ROWS}", "live = n < points"]
    for i, name in enumerate(spec.activations):
        body += [f"if ACTIVATION == {i}:", *(f"    {line}" for line in _adjoint(spec, name, end))]
    return f"""
@gluon.jit(do_not_specialize=["points", "first", "tiles", "again", "columns"])
def {"backward_end_kernel" if end else "backward_kernel"}(
    x_ptr, i_ptr, i_scale_ptr, w_ptr, w_scale_ptr, b_ptr, c_ptr, a_ptr, a_scale_ptr, s_ptr, z_ptr, z_scale_ptr,
    part_ptr, g_ptr,
    points, first, tiles, again, columns, weight_stride,
    FIRST: gl.constexpr, ACTIVATION: gl.constexpr, H: gl.constexpr, PARTS: gl.constexpr, RING: gl.constexpr,
    WARPS: gl.constexpr, GROUPS: gl.constexpr,
):
{indent(_head(spec, end, True) + _over_tiles(body, True), 1)}
"""


def _adjoint(spec: Spec, name: str, end: bool) -> list[str]:
    last, run = len(spec.space) - 1, runs(spec.space)[0]
    (tangent_y, tangent_more), (y, more) = ADJOINTS[name]
    lines = [*jets("base", 0), *product("bar", last, "1", True)]
    if end:
        lines += [*_collect("y0"), *jets("x", last, "NB + 1")]
        return [*lines, *last_sums(spec.space, last, y, more, "NB + 2")]
    at = "(k - start + 1) * (NB + 1)"
    inner = [*jets("x", "k", at), *product("b", "k", f"{at} + 1", True), f"q = ({run.weights[0]}) * x * bar"]
    inner += [f"y0 += {tangent_more}", f"y = {tangent_y}", "if FIRST == 0:", f"    {put('z', 'y', 'k')}"]
    sums = f"add_to(pb + (1 + k + {run.coordinate - run.start}) * H + h, gl.sum(y, 0), again)"
    inner += ["if FIRST == 1:", f"    {sums}"]
    lines += [f"y0 = {ZEROS}", "for k in range(start, stop):", *(f"    {line}" for line in inner)]
    return [*lines, _LEAVE.format("y0")]
