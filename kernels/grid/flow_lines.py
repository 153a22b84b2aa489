"""Write the functions of convection and diffusion along one axis: `push` at a position, `pull_f` and `pull_c` its
adjoint at a position, which may be a ghost point (of face values that are not linear: `limiter_lines`).

Convection along one axis, c the velocity, q the face value from the left, q' from the right, D f = (q+ - q-) / h:

    advective      out_i = max(c_i, 0) D f_i + min(c_i, 0) D' f_i
    conservative   out_i = D (max(c, 0) f)_i + D' (min(c, 0) f)_i
    skew           the mean of both

Adjoint, g the incoming gradient. A face F between points F and F + 1 receives

    l_F = (a_F - a_{F+1}) / h,    a = max(c, 0) g  (advective)  or  g  (conservative),

and point e gathers sum_F l_F dq_F/df_e over the 2 R faces that it is read by; likewise q' with min(c, 0).
Conservative: that is the gradient of the products, so f gets max(c, 0) and c gets f times it. Advective: c_i gets g_i
D f_i or g_i D' f_i.

Diffusion along one axis, with face values of c and differences of f:

    F_m = k_m d_m,  k_m = sum_t I_t (c_{m+t} + c_{m+1-t}),  d_m = sum_t s_t (f_{m+t} - f_{m+1-t}) / h,
    out_0 = sum_t s_t (F_{t-1} - F_{-t}) / h

Adjoint: l_m = sum_t s_t (g_{m+1-t} - g_{m+t}) / h is what face m receives, so

    f_0 gets sum_t s_t (l_{-t} k_{-t} - l_{t-1} k_{t-1}) / h,     c_0 gets sum_t I_t (l_{-t} d_{-t} + l_{t-1} d_{t-1}).

Of order 2 c is limited beyond walls (`fluxes.limited_ghost`), and rows whose first point lies on a wall are doubled:
so is what they pass back.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinnfuse.kernels.grid.flow import Flow

LINES = "p, n, sf, sc, on, tf_ptr, tc_ptr, inv_h, MODE: tl.constexpr, ACC: tl.constexpr"
INSIDE, MASKED, PERIODIC, WALLS, GHOST = range(5)
"""Of `pinnfuse.kernels.grid.fluxes`."""


def _name(array: str, t: int) -> str:
    return f"{array}_m{-t}" if t < 0 else f"{array}_p{t}" if t else f"{array}_0"


def _at(t: int) -> str:
    return f"p - {-t}" if t < 0 else f"p + {t}" if t else "p"


def _taps(flow: Flow, array: str, first: int, last: int, ghosts: bool = True) -> list[str]:
    """Read an array at a range of positions."""
    count = {"f": flow.count_f, "c": flow.count_c}.get(array, 0)
    lines = []
    for t in range(first, last + 1):
        if not ghosts:
            lines.append(f"{_name(array, t)} = read_zero({array}_line, {_at(t)}, n, s{array}, on, MODE, ACC)")
            continue
        if flow.limited and array == "c":
            lines.append(f"{_name('c', t)} = read_limited(c_line, {_at(t)}, n, sc, on, tc_ptr, MODE, ACC)")
            continue
        where = f"n, s{array}, on, t{array}_ptr, {flow.depth}, {count}, MODE, ACC"
        lines.append(f"{_name(array, t)} = read({array}_line, {_at(t)}, {where})")
    return lines + (_ghosts(flow, array, count, first, last) if ghosts else [])


def _ghosts(flow: Flow, array: str, count: int, first: int, last: int) -> list[str]:
    """Beside walls, points outside take the place of the zeros that were read there."""
    lines = []
    for end, reach in ((0, -first), (1, last)):
        start, turn = ("n - 1", -1) if end else ("0", 1)
        for k in range(min(flow.depth, reach)):
            row = f"t{array}_ptr + {(end * flow.depth + k) * (count + 1)}"
            value = f"ghost({array}_line, {start}, {turn}, s{array}, on, {row}, {count}, ACC)"
            if flow.limited and array == "c":
                value = f"limited_ghost(c_line, n, sc, on, {end}, tc_ptr, ACC)"
            lines.append(f"    outside = {value}")
            for t in range(k + 1, reach + 1):  # p + t is the point k + 1 steps outside
                name = _name(array, t if end else -t)
                place = f"n - {t - k}" if end else f"{t - 1 - k}"
                lines.append(f"    {name} = tl.where(p == {place}, outside, {name})")
    return [f"if MODE == {WALLS}:", *lines] if lines else []


def _sum(weights: Sequence[float], names: Sequence[str]) -> str:
    return " + ".join(f"{w!r} * {name}" for w, name in zip(weights, names, strict=True) if w) or "0.0"


def _face(flow: Flow, names: Sequence[str]) -> str:
    """The face value from the side of the first of 2 reach values."""
    if flow.scheme == "van_leer":
        return f"van_leer({', '.join(names[:3])})"
    if flow.scheme == "weno5":
        return f"weno5({', '.join(names[:5])})"
    return "(" + _sum(flow.weights, names) + ")"


def _difference(flow: Flow, array: str, mirrored: bool = False) -> str:
    """h D at the centre: the difference of two face values, from the left, or from the right if mirrored."""
    r = flow.reach
    sign = -1 if mirrored else 1
    upper = [_name(array, sign * t) for t in range(1 - r, r + 1)]
    lower = [_name(array, sign * t) for t in range(-r, r)]
    if flow.weights:
        weights = [a - b for a, b in zip([0.0, *flow.weights], [*flow.weights, 0.0], strict=True)]
        names = [_name(array, sign * t) for t in range(-r, r + 1)]
        return "(" + _sum([sign * w for w in weights], names) + ")"
    text = f"({_face(flow, upper)} - {_face(flow, lower)})"
    return f"(-{text})" if mirrored else text


def _gathered(flow: Flow, faces: str, mirrored: bool) -> list[str]:
    """`got` += sum over faces of l_F dq_F/df_0; `faces` names what the rows give, a in l_F = a_F - a_{F+1}."""
    r = flow.reach
    weights = [a - b for a, b in zip([0.0, *flow.weights], [*flow.weights, 0.0], strict=True)]
    sign = -1 if mirrored else 1
    names = [_name(faces, -sign * t) for t in range(-r, r + 1)]
    return [f"got += {_sum([sign * w for w in weights], names)}"]


def write_function(name: str, lines: Sequence[str], arguments: str, doc: str) -> str:
    body = "\n".join("    " + line for line in lines)
    return f'@triton.jit\ndef {name}({arguments}, {LINES}):\n    """{doc}"""\n{body}\n'


def push(flow: Flow) -> str:
    return write_function("push", _push_lines(flow), "f_line, c_line", "The operator along one axis at position p.")


def _push_lines(flow: Flow) -> list[str]:
    if flow.kind == "diffusion":
        lines = [*_diffusion_faces(flow), f"total = inv_h * ({_staggered(flow, 'F')})"]
        if flow.limited:
            lines += [f"if MODE == {WALLS}:", "    total *= row_factor(p, n, tc_ptr)"]
        return [*lines, "return total"]
    r = flow.reach
    lines = _taps(flow, "f", -r, r)
    results = []
    if flow.form != "conservative":
        lines += _taps(flow, "c", -r, r) if flow.form == "skew" else _taps(flow, "c", 0, 0, ghosts=False)
        if not flow.split:
            lines.append(f"advective = c_0 * {_difference(flow, 'f')}")
        elif flow.weights:
            lines.append(
                f"advective = positive(c_0) * {_difference(flow, 'f')} + negative(c_0) * {_difference(flow, 'f', True)}"
            )
        else:  # one face formula on values seen from upstream
            for t in range(-r, r + 1):
                lines.append(f"{_name('s', t)} = tl.where(c_0 > 0, {_name('f', t)}, {_name('f', -t)})")
            lines.append(f"advective = tl.abs(c_0) * {_difference(flow, 's')}")
        results.append("advective")
    if flow.form != "advective":
        lines += _taps(flow, "c", -r, r) if flow.form == "conservative" else []
        lines += _products(flow, -r, r)
        lines.append(f"conservative = {_difference(flow, 'a')}")
        if flow.split:
            lines.append(f"conservative += {_difference(flow, 'b', True)}")
        results.append("conservative")
    factor = "0.5 * " if len(results) == 2 else ""
    return [*lines, f"return {factor}inv_h * ({' + '.join(results)})"]


def _products(flow: Flow, first: int, last: int) -> list[str]:
    """a, b: f times the positive and the negative part of the velocity; a alone without splitting."""
    return _times_velocity(flow, "f", ("a", "b"), first, last)


def _row_products(flow: Flow, first: int, last: int) -> list[str]:
    """i, j: the same of the incoming gradient."""
    return _times_velocity(flow, "g", ("i", "j"), first, last)


def _times_velocity(flow: Flow, array: str, products: tuple[str, str], first: int, last: int) -> list[str]:
    lines = []
    for t in range(first, last + 1):
        value, c = _name(array, t), _name("c", t)
        lines.append(f"{_name(products[0], t)} = {f'positive({c})' if flow.split else c} * {value}")
        if flow.split:
            lines.append(f"{_name(products[1], t)} = negative({c}) * {value}")
    return lines


def pull_f(flow: Flow) -> str:
    if flow.kind == "diffusion":
        lines = _diffusion_received(flow, differences=False)
        lines.append(f"return inv_h * inv_h * ({_staggered_back(flow)})")
    else:
        r = flow.reach
        lines = _taps(flow, "g", -r, r, ghosts=False)
        lines.append("total = tl.zeros_like(g_0)")
        if flow.form != "advective":
            span = r if flow.form == "skew" else 0
            lines += _taps(flow, "c", -span, span)
            lines += ["got = tl.zeros_like(g_0)", *_gathered(flow, "g", False)]
            lines.append(f"total += {'positive(c_0)' if flow.split else 'c_0'} * got")
            if flow.split:
                lines += ["got = tl.zeros_like(g_0)", *_gathered(flow, "g", True)]
                lines.append("total += negative(c_0) * got")
        if flow.form != "conservative":
            if flow.form == "advective":
                lines += _taps(flow, "c", -r, r, ghosts=False)
            lines += _row_products(flow, -r, r)
            lines += ["got = tl.zeros_like(g_0)", *_gathered(flow, "i", False)]
            if flow.split:
                lines += _gathered(flow, "j", True)
            lines.append("total += got")
        lines.append(f"return {'0.5 * ' if flow.form == 'skew' else ''}inv_h * total")
    return write_function(
        "pull_f", lines, "g_line, f_line, c_line, sg", "What position p of f receives along one axis."
    )


def pull_c(flow: Flow) -> str:
    if flow.kind == "diffusion":
        lines = _diffusion_received(flow, differences=True)
        p = flow.reach
        lines.append("return inv_h * inv_h * (" + " + ".join(
            f"{w!r} * ({_name('l', -t)} * {_name('d', -t)} + {_name('l', t - 1)} * {_name('d', t - 1)})"
            for t, w in enumerate(flow.weights[p:], start=1)
        ) + ")")  # fmt: skip
    else:
        rows = flow.reach if flow.form != "advective" else 0
        span = flow.reach if flow.form != "conservative" else 0
        lines = _taps(flow, "g", -rows, rows, ghosts=False)
        lines += _taps(flow, "f", -span, span) + _taps(flow, "c", 0, 0)
        lines.append("total = tl.zeros_like(g_0)")
        if flow.form != "advective":
            lines += ["got = tl.zeros_like(g_0)", *_gathered(flow, "g", False)]
            if flow.split:
                lines += ["above = got", "got = tl.zeros_like(g_0)", *_gathered(flow, "g", True)]
                lines.append("got = by_sign(c_0, above, got)")
            lines.append("total += f_0 * got")
        if flow.form != "conservative":
            if flow.split:
                lines.append(f"total += g_0 * by_sign(c_0, {_difference(flow, 'f')}, {_difference(flow, 'f', True)})")
            else:
                lines.append(f"total += g_0 * {_difference(flow, 'f')}")
        lines.append(f"return {'0.5 * ' if flow.form == 'skew' else ''}inv_h * total")
    return write_function(
        "pull_c", lines, "g_line, f_line, c_line, sg", "What position p of c receives along one axis."
    )


def _diffusion_faces(flow: Flow) -> list[str]:
    """k, d (times h) and F = k d of the 2 reach faces around the centre."""
    p = flow.reach
    lines = _taps(flow, "f", 1 - 2 * p, 2 * p - 1) + _taps(flow, "c", 1 - 2 * p, 2 * p - 1)
    for m in range(-p, p):
        lines += [f"{_name('k', m)} = {_mean(flow, m)}", f"{_name('d', m)} = {_slope(flow, 'f', m)}"]
        lines.append(f"{_name('F', m)} = inv_h * {_name('k', m)} * {_name('d', m)}")
    return lines


def _mean(flow: Flow, m: int) -> str:
    """c at the face between m and m + 1."""
    weights = _numbered(flow.weights[flow.reach :])
    return " + ".join(f"{w!r} * ({_name('c', m + t)} + {_name('c', m + 1 - t)})" for t, w in weights)


def _slope(flow: Flow, array: str, m: int) -> str:
    """h times the derivative at the face between m and m + 1."""
    weights = _numbered(flow.weights[: flow.reach])
    return " + ".join(f"{w!r} * ({_name(array, m + t)} - {_name(array, m + 1 - t)})" for t, w in weights)


def _numbered(weights: Sequence[float]) -> list[tuple[int, float]]:
    return list(enumerate(weights, start=1))


def _staggered(flow: Flow, array: str) -> str:
    return " + ".join(
        f"{w!r} * ({_name(array, t - 1)} - {_name(array, -t)})" for t, w in _numbered(flow.weights[: flow.reach])
    )


def _diffusion_received(flow: Flow, differences: bool) -> list[str]:
    """l (times h) of the faces around the centre, and their k or d (times h)."""
    p = flow.reach
    lines = _taps(flow, "g", 1 - 2 * p, 2 * p - 1, ghosts=False)
    if flow.limited:
        lines.append(f"if MODE >= {WALLS}:")
        lines += [f"    {_name('g', t)} *= row_factor({_at(t)}, n, tc_ptr)" for t in range(1 - 2 * p, 2 * p)]
    lines += _taps(flow, "f" if differences else "c", 1 - 2 * p, 2 * p - 1)
    for m in range(-p, p):
        lines.append(f"{_name('l', m)} = -({_slope(flow, 'g', m)})")
        other = f"{_name('d', m)} = {_slope(flow, 'f', m)}" if differences else f"{_name('k', m)} = {_mean(flow, m)}"
        lines.append(other)
    return lines


def _staggered_back(flow: Flow) -> str:
    return " + ".join(
        f"{w!r} * ({_name('l', -t)} * {_name('k', -t)} - {_name('l', t - 1)} * {_name('k', t - 1)})"
        for t, w in _numbered(flow.weights[: flow.reach])
    )
