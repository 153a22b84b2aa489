"""Reading lines of fields, ghost points included, and the nonlinear face values with their slopes.

Van Leer, with a = f1 - f0 and b = f2 - f1 where a b > 0, else q = f1:

    q = f1 + a b / (a + b),     dq/da = b^2 / (a + b)^2,     dq/db = a^2 / (a + b)^2

WENO5 of Jiang and Shu: q = sum_k w_k p_k with w_k = A_k / sum A, A_k = d_k / (eps + B_k)^2, so that

    dq = sum_k w_k dp_k - 2 sum_k w_k (p_k - q) / (eps + B_k) dB_k
"""

import triton
import triton.language as tl

INSIDE = tl.constexpr(0)  # a tile away from all ends
MASKED = tl.constexpr(1)  # away from the ends of this axis
PERIODIC = tl.constexpr(2)
WALLS = tl.constexpr(3)
GHOST = tl.constexpr(4)  # at a point outside walls


@triton.jit
def read(
    line, p, n, step, on, table_ptr, DEPTH: tl.constexpr, COUNT: tl.constexpr, MODE: tl.constexpr, ACC: tl.constexpr
):  # fmt: skip
    """The value at position p of a line (a pointer, or one per line; `on` says which lines are there).

    With WALLS 0 outside (the text that calls this puts in what `ghost` gives), with GHOST points outside by their
    tables: a row for each of DEPTH points outside the low end, then the high end, of COUNT weights of the points
    nearest the end, and the wall's constant. Further outside the value is 0.
    """
    if MODE == INSIDE:
        value = tl.load(line + p * step).to(ACC)
    elif MODE == MASKED:
        value = tl.load(line + p * step, mask=on, other=0.0).to(ACC)
    elif MODE == PERIODIC:
        p = tl.where(p < 0, p + n, p)
        p = tl.where(p >= n, p - n, p)
        if p.shape[1] > 1:
            p = tl.max_contiguous(p, [1, p.shape[1]])  # but for the place where it wraps; else lanes are far apart
        value = tl.load(line + p * step, mask=on & (p < n), other=0.0).to(ACC)
    else:
        inside = (p >= 0) & (p < n)
        value = tl.load(line + p * step, mask=inside & on, other=0.0).to(ACC)
        if MODE == GHOST:
            outside = (p >= -DEPTH) & (p < n + DEPTH) & (inside == 0) & on
            row = table_ptr + tl.where(p < 0, -p - 1, p - n + DEPTH) * (COUNT + 1)
            first, turn = tl.where(p < 0, 0, n - 1), tl.where(p < 0, 1, -1)
            for k in range(COUNT + 1):  # the constant is the weight of 1
                weight = tl.load(row + k, mask=outside, other=0.0)
                near = tl.load(line + (first + turn * k) * step, mask=outside & (k < COUNT), other=1.0).to(ACC)
                value += weight * near
    return value


@triton.jit
def ghost(
    line, first, turn, step, on, row_ptr, COUNT: tl.constexpr, ACC: tl.constexpr
):  # fmt: skip
    """The value of a point outside an end: a row of the table, applied to the points from `first` on."""
    value = tl.load(line + first * step, mask=on, other=0.0).to(ACC) * tl.load(row_ptr) + tl.load(row_ptr + COUNT)
    for k in range(1, COUNT):  # a loop that stays one: registers decide about tiles away from walls too
        value += tl.load(row_ptr + k) * tl.load(line + (first + turn * k) * step, mask=on, other=0.0).to(ACC)
    return value


@triton.jit
def read_zero(line, p, n, step, on, MODE: tl.constexpr, ACC: tl.constexpr):
    """The same with 0 outside walls."""
    if MODE == GHOST:  # noqa: SIM108 - one branch is compiled
        value = read(line, p, n, step, on, line, 0, 0, WALLS, ACC)
    else:
        value = read(line, p, n, step, on, line, 0, 0, MODE, ACC)
    return value


@triton.jit
def fold(p, n, g, end, table_ptr, DEPTH: tl.constexpr, COUNT: tl.constexpr):
    """The weight that point p has in the ghost point g + 1 steps outside an end, 0 or 1."""
    k = tl.where(end == 0, p, n - 1 - p)
    return tl.load(table_ptr + (end * DEPTH + g) * (COUNT + 1) + k, mask=(k >= 0) & (k < COUNT), other=0.0)


@triton.jit
def limited_slope(c0, c1, c2):
    """The smallest in size of c1 - c0, c2 - c1 and c0 with the sign of the first two, 0 if these differ."""
    a, b = c1 - c0, c2 - c1
    size = tl.minimum(tl.minimum(tl.abs(a), tl.abs(b)), tl.abs(c0))
    return tl.where(a * b > 0, tl.where(a > 0, size, -size), 0.0)


@triton.jit
def limited_ghost(line, n, step, on, END: tl.constexpr, table_ptr, ACC: tl.constexpr):
    """The value of c outside an end."""
    first, turn = (n - 1) * END, (1 - 2 * END) * step
    line += first * step
    c0 = tl.load(line, mask=on, other=0.0).to(ACC)
    c1 = tl.load(line + turn, mask=on, other=0.0).to(ACC)
    c2 = tl.load(line + 2 * turn, mask=on, other=0.0).to(ACC)
    return c0 - tl.load(table_ptr + 2 * END) * limited_slope(c0, c1, c2)


@triton.jit
def limited_fold(p, line, n, step, on, end, table_ptr, ACC: tl.constexpr):
    """The derivative of the value outside an end by that of point p."""
    first, turn = (n - 1) * end, (1 - 2 * end) * step
    line += first * step
    c0 = tl.load(line, mask=on, other=0.0).to(ACC)
    c1 = tl.load(line + turn, mask=on, other=0.0).to(ACC)
    c2 = tl.load(line + 2 * turn, mask=on, other=0.0).to(ACC)
    a, b = c1 - c0, c2 - c1
    steep = tl.load(table_ptr + 2 * end) * tl.where(a * b > 0, 1.0, 0.0)
    by_a = (tl.abs(a) <= tl.abs(b)) & (tl.abs(a) <= tl.abs(c0))
    by_b = tl.abs(b) <= tl.abs(c0)
    by_c = tl.where((a > 0) == (c0 > 0), 1.0, -1.0)
    s0 = tl.where(by_a, -1.0, tl.where(by_b, 0.0, by_c))
    s1 = tl.where(by_a, 1.0, tl.where(by_b, -1.0, 0.0))
    s2 = tl.where(by_a, 0.0, tl.where(by_b, 1.0, 0.0))
    k = (n - 1) * end + (1 - 2 * end) * p
    slope = tl.where(k == 0, s0, tl.where(k == 1, s1, tl.where(k == 2, s2, 0.0)))
    return tl.where(k == 0, 1.0, 0.0) - steep * slope


@triton.jit
def read_limited(line, p, n, step, on, table_ptr, MODE: tl.constexpr, ACC: tl.constexpr):
    """`read` of a c that is limited beyond walls, at most one point outside."""
    value = read_zero(line, p, n, step, on, MODE, ACC)
    if MODE == GHOST:
        value += tl.where(p == -1, limited_ghost(line, n, step, on, 0, table_ptr, ACC), 0.0)
        value += tl.where(p == n, limited_ghost(line, n, step, on, 1, table_ptr, ACC), 0.0)
    return value


@triton.jit
def row_factor(p, n, table_ptr):
    """The factor of row p of a limited diffusion."""
    return tl.where(p == 0, tl.load(table_ptr + 1), tl.where(p == n - 1, tl.load(table_ptr + 3), 1.0))


@triton.jit
def positive(v):
    return 0.5 * (v + tl.abs(v))


@triton.jit
def negative(v):
    return 0.5 * (v - tl.abs(v))


@triton.jit
def by_sign(v, above, below):
    """`above` where v > 0, `below` where v < 0, their mean where v = 0."""
    return tl.where(v > 0, above, tl.where(v < 0, below, 0.5 * (above + below)))


@triton.jit
def van_leer(f0, f1, f2):
    a, b = f1 - f0, f2 - f1
    smooth = a * b > 0
    return f1 + tl.where(smooth, a * b / tl.where(smooth, a + b, 1.0), 0.0)


@triton.jit
def van_leer_slopes(f0, f1, f2):
    a, b = f1 - f0, f2 - f1
    smooth = a * b > 0
    total = tl.where(smooth, a + b, 1.0)
    ra, rb = tl.where(smooth, b / total, 0.0), tl.where(smooth, a / total, 0.0)
    da, db = ra * ra, rb * rb
    return -da, 1.0 + da - db, db


@triton.jit
def van_leer_slope(place, f0, f1, f2):
    """dq/df of the value at a place, 0 outside."""
    d0, d1, d2 = van_leer_slopes(f0, f1, f2)
    return tl.where(place == 0, d0, tl.where(place == 1, d1, tl.where(place == 2, d2, 0.0)))


@triton.jit
def weno5(f0, f1, f2, f3, f4):
    q, p0, p1, p2, w0, w1, w2, r0, r1, r2 = _weno5(f0, f1, f2, f3, f4)
    return q


@triton.jit
def _weno5(f0, f1, f2, f3, f4):
    p0 = (2.0 * f0 - 7.0 * f1 + 11.0 * f2) * 0.16666666666666666
    p1 = (-f1 + 5.0 * f2 + 2.0 * f3) * 0.16666666666666666
    p2 = (2.0 * f2 + 5.0 * f3 - f4) * 0.16666666666666666
    s0, t0 = f0 - 2.0 * f1 + f2, f0 - 4.0 * f1 + 3.0 * f2
    s1, t1 = f1 - 2.0 * f2 + f3, f1 - f3
    s2, t2 = f2 - 2.0 * f3 + f4, 3.0 * f2 - 4.0 * f3 + f4
    r0 = 1.0 / (1e-6 + 1.0833333333333333 * s0 * s0 + 0.25 * t0 * t0)
    r1 = 1.0 / (1e-6 + 1.0833333333333333 * s1 * s1 + 0.25 * t1 * t1)
    r2 = 1.0 / (1e-6 + 1.0833333333333333 * s2 * s2 + 0.25 * t2 * t2)
    largest = tl.maximum(tl.maximum(r0, r1), r2)  # r^2 alone may overflow
    a0 = 0.1 * (r0 / largest) * (r0 / largest)
    a1 = 0.6 * (r1 / largest) * (r1 / largest)
    a2 = 0.3 * (r2 / largest) * (r2 / largest)
    total = 1.0 / (a0 + a1 + a2)
    w0, w1, w2 = a0 * total, a1 * total, a2 * total
    return w0 * p0 + w1 * p1 + w2 * p2, p0, p1, p2, w0, w1, w2, r0, r1, r2


@triton.jit
def weno5_slopes(f0, f1, f2, f3, f4):
    q, p0, p1, p2, w0, w1, w2, r0, r1, r2 = _weno5(f0, f1, f2, f3, f4)
    s0, t0 = f0 - 2.0 * f1 + f2, f0 - 4.0 * f1 + 3.0 * f2
    s1, t1 = f1 - 2.0 * f2 + f3, f1 - f3
    s2, t2 = f2 - 2.0 * f3 + f4, 3.0 * f2 - 4.0 * f3 + f4
    c0, c1, c2 = -2.0 * w0 * (p0 - q) * r0, -2.0 * w1 * (p1 - q) * r1, -2.0 * w2 * (p2 - q) * r2
    s0, t0 = 2.1666666666666665 * c0 * s0, 0.5 * c0 * t0
    s1, t1 = 2.1666666666666665 * c1 * s1, 0.5 * c1 * t1
    s2, t2 = 2.1666666666666665 * c2 * s2, 0.5 * c2 * t2
    w0, w1, w2 = w0 * 0.16666666666666666, w1 * 0.16666666666666666, w2 * 0.16666666666666666
    d0 = 2.0 * w0 + s0 + t0
    d1 = -7.0 * w0 - w1 - 2.0 * s0 - 4.0 * t0 + s1 + t1
    d2 = 11.0 * w0 + 5.0 * w1 + 2.0 * w2 + s0 + 3.0 * t0 - 2.0 * s1 + s2 + 3.0 * t2
    d3 = 2.0 * w1 + 5.0 * w2 + s1 - t1 - 2.0 * s2 - 4.0 * t2
    d4 = -w2 + s2 + t2
    return d0, d1, d2, d3, d4


@triton.jit
def weno5_slope(place, f0, f1, f2, f3, f4):
    """dq/df of the value at a place, 0 outside."""
    d0, d1, d2, d3, d4 = weno5_slopes(f0, f1, f2, f3, f4)
    near = tl.where(place == 0, d0, tl.where(place == 1, d1, tl.where(place == 2, d2, 0.0)))
    return tl.where(place == 3, d3, tl.where(place == 4, d4, near))
