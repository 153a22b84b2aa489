"""Write the kernel of the output layer: residuals, loss, adjoint of the last activation."""

from __future__ import annotations

from collections.abc import Callable

from pinnfuse.kernels.jets.channels import POLYNOMIAL, adjoint
from pinnfuse.kernels.jets.pieces import (
    COMMON,
    INTEGERS,
    first_layer,
    indent,
    joint_sums,
    load_channel,
    load_coefficients,
    load_points,
    slopes_of,
    store_block,
)
from pinnfuse.kernels.jets.pointwise import Pointwise
from pinnfuse.kernels.jets.spec import ADJOINT, LOSS, LOSS_AND_GRADIENT, OUTPUTS, Spec

Sweep = Callable[[Spec, dict[int, list[tuple[int, int]]]], tuple[list[str], list[str]]]
"""(spec, channel -> (output, column) that read it) -> lines of one block of units, before and after its sums."""


def _dense_sweep(spec: Spec, by_channel: dict[int, list[tuple[int, int]]]) -> tuple[list[str], list[str]]:
    """All channels of a block at once, in registers."""
    space, count = spec.space, len(spec.space)
    lines = []
    for k in range(count):
        code = " + ".join(f"v{i}[:, None] * u{f}" for i, f in by_channel[k])
        lines.append(f"b{k} = {code or 'tl.zeros([ROWS, BLOCK], dtype)'}")
    for i, name in enumerate(spec.activations):
        slopes = slopes_of(spec, i)
        seen: set[int] = set()
        for k in range(count):
            if name not in POLYNOMIAL:
                slopes[k] = [load_channel(k), *slopes[k]]
            for j, f in by_channel[k]:
                slopes[k].append(f"gu{f} {'+=' if f in seen else '='} v{j}[:, None] * a{k}")
                seen.add(f)
        lines += [f"if ACTIVATION == {i}:", *(f"    {line}" for line in adjoint(space, slopes))]
    return [*lines, *store_block(count, "y", "z")], first_layer(space)


def output_kernel(spec: Spec, code: Pointwise | None, sweep_of: Sweep = _dense_sweep) -> str:
    space, m, count, d = spec.space, spec.fields, len(spec.space), spec.space.dimension
    tail = spec.tail_code
    reads, raw, up = (spec.outputs, "o", "v") if tail is None else (tail.reads, "raw", "up")
    by_channel = {k: [(i, o.column) for i, o in enumerate(reads) if o.channel == k] for k in range(count)}
    place = ["h = units(nb * BLOCK, BLOCK, PERMUTED)"]
    place += ["offset = row[:, None].to(tl.int64) * H + (nb * BLOCK + tl.arange(0, BLOCK))[None, :]"]
    place += [f"u{f} = tl.load(w_ptr + {f} * H + h)[None, :]" for f in range(m)]

    values = [
        f"{raw}{i} = tl.zeros([ROWS], dtype)" + (f" + tl.load(b_ptr + {o.column})" if o.channel == 0 else "")
        for i, o in enumerate(reads)
    ]
    sums = list(place)
    for k in range(count):
        if by_channel[k]:
            sums += [load_channel(k), *(f"{raw}{i} += tl.sum(a{k} * u{f}, 1)" for i, f in by_channel[k])]
    values += ["for nb in range(0, NB):", *(f"    {line}" for line in sums)]
    count_out = range(len(spec.outputs))
    outputs = [f"tl.store(r_ptr + {i} * points.to(tl.int64) + n, o{i}, mask=live)" for i in count_out]
    given = [f"{up}{i} = tl.load(g_ptr + {i} * points.to(tl.int64) + n, mask=live, other=0.0)" for i in count_out]
    if spec.tail is not None and tail is not None:
        width = 0 if spec.tail.given is None else spec.tail.given.output_width
        size = "tl.minimum(points - first, tiles * ROWS).to(tl.int64)"
        loads = [
            f"given{k}_{c} = tl.load(t_ptr + ({k} * size + row) * {width} + {c}, mask=live, other=0.0)"
            for k, c in tail.loads
        ]
        values += [f"size = {size}", *loads, *tail.forward]
    equations = code.equations if code else 0
    trained = code.trained if code else 0
    slots = f"part_ptr + tile.to(tl.int64) * columns + {m} * H"
    loss: list[str] = []
    if code is not None:
        loss += [f"c{i} = tl.load(c_ptr + {len(space.coefficients) + i})" for i in range(code.constants)]
        loss += [f"p{i} = tl.load(p_ptr + {i})" for i in range(trained)]
        loss += [
            f"f{i} = tl.load(f_ptr + {i} * points.to(tl.int64) + n, mask=live, other=0.0)" for i in range(code.data)
        ]
        loss += list(code.residuals)
        for e in range(equations):
            loss += [
                f"r{e} = tl.where(live, r{e} + tl.zeros([ROWS], dtype), 0.0)",
                f"q{e} = r{e}",
                "if WEIGHTED:",
                f"    q{e} *= tl.load(pw_ptr + n.to(tl.int64) * {equations} + {e}, mask=live, other=0.0)",
                f"add_to({slots} + {e}, tl.sum(q{e} * r{e}, 0), again)",
                "if KEEP:",
                f"    tl.store(r_ptr + n.to(tl.int64) * {equations} + {e}, r{e}, mask=live)",
                f"q{e} *= tl.load(ew_ptr + {e}) * (2.0 / points.to(dtype))",
            ]
        loss += list(code.seeds)
        loss += [
            f"add_to({slots} + {equations + i}, tl.sum(tl.where(live, t{i} + tl.zeros([ROWS], dtype), 0.0), 0), again)"
            for i in range(trained)
        ]
    body = [
        "NB: tl.constexpr = H // BLOCK",
        "dtype = b_ptr.dtype.element_ty",
        "tile = tl.program_id(0)",
        "row = tile * ROWS + tl.arange(0, ROWS)",
        "channel = tiles.to(tl.int64) * ROWS * H",
        f"part = {count} * channel",
        *load_coefficients(space),
        *load_points(d),
        *([f"if MODE != {ADJOINT}:", *(f"    {line}" for line in values)] if tail is None else values),
        f"if MODE == {OUTPUTS}:",
        *(f"    {line}" for line in outputs),
        f"if MODE == {ADJOINT}:",
        *(f"    {line}" for line in given),
    ]
    if loss:
        body += [f"if MODE == {LOSS} or MODE == {LOSS_AND_GRADIENT}:", *(f"    {line}" for line in loss)]
    bias = {}
    for f in range(m):
        names = [f"v{i}" for i, o in enumerate(reads) if o.channel == 0 and o.column == f]
        bias[f] = " + ".join(names) or "tl.zeros([ROWS], dtype)"
    back = [] if tail is None else list(tail.adjoint)
    back += [f"v{i} = tl.where(live, v{i} + tl.zeros([ROWS], dtype), 0.0)" for i in range(len(reads))]
    back += [f"add_to({slots} + {equations + trained + f}, tl.sum({bias[f]}, 0), again)" for f in range(m)]
    sweep = [*place, *(f"gu{f} = tl.zeros([ROWS, BLOCK], dtype)" for f in range(m))]
    sweep.append(f"pb = {slots} + {equations + trained + m}")
    before, after = sweep_of(spec, by_channel)
    sweep += before
    sweep += joint_sums([f"gu{f}" for f in range(m)], [f"gu{f}" for f in range(m)])
    sweep += [f"add_to(part_ptr + tile.to(tl.int64) * columns + {f} * H + h, gu{f}, again)" for f in range(m)]
    sweep += after
    back += ["for nb in range(0, NB):", *(f"    {line}" for line in sweep)]
    body += [f"if MODE == {LOSS_AND_GRADIENT} or MODE == {ADJOINT}:", *(f"    {line}" for line in back)]
    return f"""
@triton.jit(do_not_specialize={INTEGERS})
def output_kernel(
    x_ptr, a_ptr, a_scale_ptr, s_ptr,  # points, jets of the last hidden layer (as in input_kernel)
    z_ptr, z_scale_ptr,  # out: adjoint of the last hidden layer before its activation, as a_ptr
    y_ptr,  # out, if FIRST is 2: the same as plain numbers [{count}, tiles ROWS, H]
    w_ptr,  # [{m}, H]
    b_ptr,  # [{m}]
    c_ptr,
    p_ptr,  # trained parameters of the PDE
    f_ptr,  # data columns, each of `points` numbers
    t_ptr,  # jets of the points alone that an output transform reads: [{count}, points of this chunk, columns]
    ew_ptr,  # [{equations}] equation weights
    pw_ptr,  # [points, {equations}] point weights, if WEIGHTED
    g_ptr,  # [{len(spec.outputs)}, points] given adjoint of the outputs, if MODE is {ADJOINT}
    r_ptr,  # out: residuals [points, {equations}] if KEEP, outputs [{len(spec.outputs)}, points] if MODE is {OUTPUTS}
    part_ptr,  # [tiles, columns] out: sums over a tile: output weights [{m}, H], losses [{equations}],
    # trained parameters [{trained}], output biases [{m}], bias of the last hidden layer [H]; if FIRST weights [{d}, H]
    points, first, tiles, again, columns,
    MODE: tl.constexpr, WEIGHTED: tl.constexpr, KEEP: tl.constexpr, FIRST: tl.constexpr, ACTIVATION: tl.constexpr,
    {COMMON},
):
{indent(body, 1)}
"""
