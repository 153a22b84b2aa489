"""Write `pull`, the adjoint along one axis of convection whose face values are not linear: van Leer, WENO5.

With the notation of `flow_lines`, a face F between points F and F + 1 receives l_F, and point e gathers
sum_F l_F dq_F/df_e. A loop over the faces reads each window of 2 R points again (from the first cache), so that the
slopes of a face value stand in the text once: unrolled, beside walls, a compiler took tens of minutes. What f and c
get comes from the same slopes, so one function gives both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pinnfuse.kernels.grid.flow import Flow
from pinnfuse.kernels.grid.flow_lines import write_function

DOC = "What position p of f and of c receives along one axis."


def pull(flow: Flow) -> str:
    """The text of the function."""
    r = flow.reach
    lines = [f"g_0 = {_zero('g', 0)}", f"f_0 = {_full(flow, 'f', 0)}", f"c_0 = {_full(flow, 'c', 0)}"]
    sums = [] if flow.form == "advective" else ["above", "below"]  # of the slopes of both products
    sums += [] if flow.form == "conservative" else ["got", "rise", "fall"]  # h D f and h D' f
    lines += [f"{name} = tl.zeros_like(f_0)" for name in sums]
    lines += [f"for face in range(-{r}, {r}):", *("    " + line for line in _at_a_face(flow))]
    of_f, of_c = [], []
    if flow.form != "advective":
        of_f.append("positive(c_0) * above + negative(c_0) * below")
        of_c.append("f_0 * by_sign(c_0, above, below)")
    if flow.form != "conservative":
        of_f.append("got")
        of_c.append("g_0 * by_sign(c_0, rise, fall)")
    factor = "0.5 * " if flow.form == "skew" else ""
    lines += [f"of_{array} = {factor}inv_h * ({' + '.join(parts)})" for array, parts in (("f", of_f), ("c", of_c))]
    lines.append("return of_f, of_c")
    return write_function("pull", lines, "g_line, f_line, c_line, sg", DOC)


def _at_a_face(flow: Flow) -> Iterable[str]:
    r = flow.reach
    yield f"g_low = {_zero('g', 'face')}"
    yield f"g_high = {_zero('g', 'face + 1')}"
    for k in range(2 * r):
        yield f"f{k} = {_full(flow, 'f', f'face + {k + 1 - r}')}"
    if flow.form == "advective":
        yield f"c{r - 1} = {_zero('c', 'face')}"
        yield f"c{r} = {_zero('c', 'face + 1')}"
    else:
        for k in range(2 * r):
            yield f"c{k} = {_full(flow, 'c', f'face + {k + 1 - r}')}"
        for array, sign in (("a", "positive"), ("b", "negative")):
            for k in range(2 * r):
                yield f"{array}{k} = {sign}(c{k}) * f{k}"
        yield f"above += (g_low - g_high) * {_slope(flow, 'a', False)}"
        yield f"below += (g_low - g_high) * {_slope(flow, 'b', True)}"
    if flow.form != "conservative":
        for sign, mirrored in (("positive", False), ("negative", True)):
            received = f"({sign}(c{r - 1}) * g_low - {sign}(c{r}) * g_high)"
            yield f"got += {received} * {_slope(flow, 'f', mirrored)}"
        yield "side = tl.where(face == 0, 1.0, tl.where(face == -1, -1.0, 0.0))"
        yield f"rise += side * {flow.scheme}({_window(flow, 'f', False)})"
        yield f"fall += side * {flow.scheme}({_window(flow, 'f', True)})"


def _slope(flow: Flow, array: str, mirrored: bool) -> str:
    """dq_F by the value at p, whose place in the window of the face follows from the face; 0 if it is in none."""
    r = flow.reach
    place = f"{r} + face" if mirrored else f"{r - 1} - face"
    return f"{flow.scheme}_slope({place}, {_window(flow, array, mirrored)})"


def _window(flow: Flow, array: str, mirrored: bool) -> str:
    """The values that a face value is made of, seen from upstream."""
    names: Sequence[str] = [f"{array}{k}" for k in range(2 * flow.reach)]
    return ", ".join((names[::-1] if mirrored else names)[:-1])


def _zero(array: str, offset: int | str) -> str:
    return f"read_zero({array}_line, {_place(offset)}, n, s{array}, on, MODE, ACC)"


def _full(flow: Flow, array: str, offset: int | str) -> str:
    count = flow.count_f if array == "f" else flow.count_c
    table = f"t{array}_ptr, {flow.depth}, {count}"
    return f"read({array}_line, {_place(offset)}, n, s{array}, on, {table}, MODE, ACC)"


def _place(offset: int | str) -> str:
    return f"p + {offset}".replace("+ -", "- ").replace(" + 0", "")
