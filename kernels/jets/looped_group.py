r"""A group of pointwise operations for many channels of second order: a loop over the tangents (see looped.py).

Channels are the value, tangents t and operators D with squares of tangents. Forward, q_n the n-th derivative of s:

    s(z):  a_t = q_1 z_t,             a_D = q_1 z_D + q_2 sum_t c_t z_t^2
    x y:   a_t = x_0 y_t + x_t y_0,   a_D = x_0 y_D + x_D y_0 + 2 sum_t c_t x_t y_t

The adjoints of operators depend on values alone, those of tangents on values, operators and the same tangent, those of
values on everything. So the adjoint kernel takes the operators first, then the tangents one by one (forward and back,
with two kinds of sums over them), then the values:

    s(z):  zbar_D = q_1 abar_D,   zbar_t = q_1 abar_t + 2 c_t q_2 z_t abar_D,
           zbar_0 = q_1 abar_0 + sum_t q_2 z_t abar_t + (q_2 z_D + q_3 sum_t c_t z_t^2) abar_D
    x y:   xbar_D = y_0 abar_D,   xbar_t = y_0 abar_t + 2 c_t y_t abar_D,   xbar_0 = sum over all channels of y_k abar_k

Kernels have the arguments of group.py's, but of a layer of the points the derivatives come as rows [channels - 1, H].
"""

from __future__ import annotations

from collections.abc import Iterator

from pinnfuse.jets.program import Add, Multiply, Operation, Scale, Shift, Unary
from pinnfuse.jets.space import ChannelSpace
from pinnfuse.kernels.jets.channels import ACTIVATIONS
from pinnfuse.kernels.jets.looped import runs
from pinnfuse.kernels.jets.pieces import indent
from pinnfuse.kernels.jets.schedule import Group

BASE = "part_ptr + tile.to(tl.int64) * columns + h"
"""Where a group's adjoint stores its sums over the rows of a tile, one row [H] each."""


class LoopedGroup:
    """Lines of both kernels. Names: `v<i>_<tag>` values, `u<i>_<tag>` adjoints; tags are 0, t (in the loop), d<o>."""

    def __init__(self, space: ChannelSpace, group: Group):
        self.space, self.group = space, group
        self.tangents = len(space.indices) - 1
        self.operators = range(len(space.operators))
        self.first = len(group.reads)
        self.known: set[tuple[int, str]] = set()

    # -- forward -----------------------------------------------------------------------------------------------------

    def forward(self) -> list[str]:
        lines = self._values(2) + self._stores("0", 0) + self._sums()
        for body in self._loops():
            lines += body([*self._loads("t", "k"), *self._apply("t"), *self._squares(), *self._stores("t", "k")])
        for o in self.operators:
            k = self.tangents + 1 + o
            lines += [*self._loads(f"d{o}", k), *self._apply(f"d{o}"), *self._stores(f"d{o}", k)]
        return lines

    def _loops(self) -> Iterator[_Loop]:
        for run in runs(self.space):
            yield _Loop(run.start, run.stop, run.weights)

    def _nonlinear(self) -> Iterator[tuple[int, Operation]]:
        for i, op in enumerate(self.group.operations, start=self.first):
            if isinstance(op, Unary | Multiply):
                yield i, op

    def _values(self, derivatives: int) -> list[str]:
        """Everything of the value channel; `q<i>_<n>` for every activation, n up to `derivatives`."""
        lines = [*self._loads("0", 0), *(f"o{j} = tl.load(o{j}_ptr + h)[None, :]" for j in range(self.group.operands))]
        for i, op in enumerate(self.group.operations, start=self.first):
            x = op.inputs[0]
            match op:
                case Unary():
                    prepare, codes = ACTIVATIONS[op.name]
                    lines += [f"z0 = v{x}_0", *prepare]
                    lines += [f"q{i}_{n} = {codes[n]}" for n in range(derivatives + 1)]
                    lines.append(f"v{i}_0 = q{i}_0")
                case Shift():
                    lines.append(f"v{i}_0 = v{x}_0 + {_constant(op)}")
                case Multiply():
                    lines.append(f"v{i}_0 = v{x}_0 * v{op.inputs[1]}_0")
                case _:
                    lines += self._linear(i, op, "0")
        return lines

    def _linear(self, i: int, op: Operation, tag: str) -> list[str]:
        x = op.inputs[0]
        match op:
            case Scale():
                return [f"v{i}_{tag} = {_constant(op)} * v{x}_{tag}"]
            case Add():
                return [f"v{i}_{tag} = v{x}_{tag} {'+' if op.sign > 0 else '-'} v{op.inputs[1]}_{tag}"]
        return [f"v{i}_{tag} = v{x}_{tag}"]

    def _apply(self, tag: str) -> list[str]:
        """A tangent or an operator through all operations."""
        lines: list[str] = []
        for i, op in enumerate(self.group.operations, start=self.first):
            x = op.inputs[0]
            square = f" + w{i}_{tag[1:]}" if tag != "t" else ""
            match op:
                case Unary():
                    lines.append(
                        f"v{i}_{tag} = q{i}_1 * v{x}_{tag}" + (f" + q{i}_2 * w{i}_{tag[1:]}" if square else "")
                    )
                case Multiply():
                    y = op.inputs[1]
                    lines.append(f"v{i}_{tag} = v{x}_0 * v{y}_{tag} + v{x}_{tag} * v{y}_0{square}")
                case _:
                    lines += self._linear(i, op, tag)
        return lines

    def _sums(self) -> list[str]:
        """`w<i>_<o>`: the sum of squares, or of products, in operator o."""
        return [f"w{i}_{o} = tl.zeros([ROWS, BLOCK], dtype)" for i, _ in self._nonlinear() for o in self.operators]

    def _squares(self) -> list[str]:
        """Add one tangent to the sums; `c<o>` is its weight."""
        lines = []
        for i, op in self._nonlinear():
            x, y = op.inputs[0], op.inputs[-1]
            factor = "" if isinstance(op, Unary) else "2.0 * "
            lines += [f"w{i}_{o} += {factor}WEIGHT{o} * v{x}_t * v{y}_t" for o in self.operators]
        return lines

    def _loads(self, tag: str, k: object) -> list[str]:
        """Lines that make channel k of every read known, as `v<r>_<tag>`."""
        lines: list[str] = []
        for r, kind in enumerate(self.group.reads):
            match kind:
                case "product" | "plain":
                    lines.append(f"v{r}_{tag} = tl.load(r{r}_ptr + {k} * channel + offset)")
                case "halves":
                    place = f"r{r}_scale_ptr + ({k} * tiles + tile) * NB + nb"
                    lines.append(f"v{r}_{tag} = get(r{r}_ptr + {k} * channel + offset, part, {place}, PARTS)")
                case "points" if tag == "0":
                    lines += [
                        "n = tl.minimum(row, points - 1).to(tl.int64)",
                        f"v{r}_0 = tl.zeros([ROWS, BLOCK], dtype)",
                        f"for j in range(0, IN{r}):",
                        f"    v{r}_0 += tl.load(x{r}_ptr + n * IN{r} + j)[:, None] "
                        f"* tl.load(w{r}_ptr + h * IN{r} + j)[None, :]",
                    ]
                case "points":
                    row = f"tl.load(t{r}_ptr + ({k} - 1) * H + h)[None, :]"
                    lines.append(f"v{r}_{tag} = tl.zeros([ROWS, BLOCK], dtype) + {row}")
            if tag == "0" and kind in ("product", "points"):
                lines.append(f"v{r}_0 += tl.load(b{r}_ptr + h)[None, :]")
        return lines

    def _stores(self, tag: str, k: object) -> list[str]:
        lines = []
        for w, (value, form) in enumerate(self.group.writes):
            place = f"out{w}_ptr + {k} * channel + offset"
            scale = f"out{w}_scale_ptr + ({k} * tiles + tile) * NB + nb"
            put = f"put_block({place}, part, {scale}, v{value}_{tag}, PARTS)"
            lines.append(put if form == "halves" else f"tl.store({place}, v{value}_{tag})")
        return lines

    # -- adjoint -----------------------------------------------------------------------------------------------------

    def adjoint(self) -> list[str]:
        lines = self._values(3) + self._sums()
        sides = [(i, n) for i, op in self._nonlinear() for n in range(len(op.inputs))]
        lines += [f"e{i}_{n} = tl.zeros([ROWS, BLOCK], dtype)" for i, n in sides]
        lines += [f"p{j} = tl.zeros([ROWS, BLOCK], dtype)" for j in range(self.group.operands)]
        for o in self.operators:
            k = self.tangents + 1 + o
            lines += [*self._given(f"d{o}", k), *self._back(f"d{o}"), *self._gives(f"d{o}", k)]
        for body in self._loops():
            self.known -= {(i, tag) for i, tag in self.known if tag == "t"}
            inner = [*self._loads("t", "k"), *self._apply("t"), *self._squares()]
            back = [*self._given("t", "k"), *self._back("t"), *self._moments("t"), *self._gives("t", "k")]
            lines += body([*inner, *back])
        for o in self.operators:
            k = self.tangents + 1 + o
            lines += [*self._loads(f"d{o}", k), *self._apply(f"d{o}"), *self._moments(f"d{o}")]
        lines += [*self._given("0", 0), *self._back("0"), *self._gives("0", 0)]
        return lines

    def sums(self) -> list[str]:
        """Code of the sums over the rows of a tile, other than those of the layers of the points, by position."""
        return [f"tl.sum(p{j}, 0)" for j in range(self.group.operands)]

    def _given(self, tag: str, k: object) -> list[str]:
        lines: list[str] = []
        for w, value in enumerate(self.group.written):
            lines += self._add(value, tag, f"tl.load(g{w}_ptr + {k} * channel + offset)")
        return lines

    def _add(self, i: int, tag: str, code: str) -> list[str]:
        sign = "+=" if (i, tag) in self.known else "="
        self.known.add((i, tag))
        return [f"u{i}_{tag} {sign} {code}"]

    def _back(self, tag: str) -> list[str]:
        """The adjoint of one channel through all operations."""
        lines: list[str] = []
        for i in reversed(range(self.first, self.first + len(self.group.operations))):
            op, up = self.group.operations[i - self.first], f"u{i}_{tag}"
            x, y = op.inputs[0], op.inputs[-1]
            match op:
                case Unary():
                    more = f" + e{i}_0" if tag == "0" else ""
                    if tag == "t":
                        more = "".join(f" + 2.0 * WEIGHT{o} * q{i}_2 * v{x}_t * u{i}_d{o}" for o in self.operators)
                    lines += self._add(x, tag, f"q{i}_1 * {up}{more}")
                case Multiply():
                    for n, (mine, other) in enumerate(((x, y), (y, x))):
                        more = f" + e{i}_{n}" if tag == "0" else ""
                        if tag == "t":
                            more = "".join(f" + 2.0 * WEIGHT{o} * v{other}_t * u{i}_d{o}" for o in self.operators)
                        lines += self._add(mine, tag, f"{up} * v{other}_0{more}")
                case Scale():
                    if op.operands and tag == "0":
                        lines.append(f"p{op.operands[0]} += {up} * v{x}_0")
                    lines += self._add(x, tag, f"{_constant(op)} * {up}")
                case Add():
                    lines += self._add(x, tag, up)
                    lines += self._add(y, tag, up if op.sign > 0 else f"-{up}")
                case Shift():
                    if op.operands and tag == "0":
                        lines.append(f"p{op.operands[0]} += {up}")
                    lines += self._add(x, tag, up)
        return lines

    def _moments(self, tag: str) -> list[str]:
        """What a tangent or an operator adds to the adjoints of values (`e`) and operands (`p`)."""
        lines = []
        for i, op in enumerate(self.group.operations, start=self.first):
            x, y, up = op.inputs[0], op.inputs[-1], f"u{i}_{tag}"
            match op:
                case Unary() if tag == "t":
                    lines.append(f"e{i}_0 += {up} * q{i}_2 * v{x}_t")
                case Unary():
                    lines.append(f"e{i}_0 += {up} * (q{i}_2 * v{x}_{tag} + q{i}_3 * w{i}_{tag[1:]})")
                case Multiply():
                    lines += [f"e{i}_0 += {up} * v{y}_{tag}", f"e{i}_1 += {up} * v{x}_{tag}"]
                case Scale() if op.operands:
                    lines.append(f"p{op.operands[0]} += {up} * v{x}_{tag}")
        return lines

    def _gives(self, tag: str, k: object) -> list[str]:
        """Store the adjoint of channel k of every read."""
        lines: list[str] = []
        row = 0
        for r, kind in enumerate(self.group.reads):
            place, up = f"d{r}_ptr + {k} * channel + offset", f"u{r}_{tag}"
            if kind == "product":
                scale = f"d{r}_scale_ptr + ({k} * tiles + tile) * NB + nb"
                lines += [f"if NEED{r} > 0:", f"    put_block({place}, part, {scale}, {up}, PARTS)"]
                if tag == "0":
                    lines.append(f"tl.store({BASE} + {row} * H, tl.sum({up}, 0))")
                row += 1
            elif kind == "points":
                lines.append(f"tl.store({BASE} + ({row} + {k}) * H, tl.sum({up}, 0))")
                row += len(self.space)
            else:
                lines += [f"if NEED{r} == 1:", f"    tl.store({place}, {up})"]
                lines += [f"if NEED{r} == 2:", f"    tl.store({place}, tl.load({place}) + {up})"]
        return lines


class _Loop:
    """Puts a body into a loop over a run of tangents, with the weights of the run in the place of WEIGHT<o>."""

    def __init__(self, start: int, stop: int, weights: tuple[str | None, ...]):
        self.start, self.stop, self.weights = start, stop, weights

    def __call__(self, body: list[str]) -> list[str]:
        for o, weight in enumerate(self.weights):
            body = [line.replace(f"WEIGHT{o}", f"({weight or '0.0'})") for line in body]
        return [f"for k in range({self.start}, {self.stop}):", *indent(body, 1).split("\n")]


def _constant(op: Scale | Shift) -> str:
    if op.operands:
        return f"o{op.operands[0]}"
    return repr(float(op.factor if isinstance(op, Scale) else op.amount))
