r"""The elementwise rules of jets as lines of Triton code: composition with an activation, and its adjoint.

Composition (Faa di Bruno, `ChannelSpace.composition`): a_k = s' z_k + sum_t c_t s^(q_t) prod z.
Adjoint: delta a = g * delta z (Leibniz, `ChannelSpace.product`), where g is the jet of s'(z), hence

    zbar_j = sum_k abar_k c_(i,j)^k g_i,      zbar_0 = sum_k abar_k g_k.

For tanh and sigmoid g follows from the stored jet a itself, since s' is a polynomial of s: 1 - a * a and a - a * a.
Every other activation stores z and takes g from the rule of composition with s' in the place of s.
"""

from __future__ import annotations

from pinnfuse.jets.space import ChannelSpace, Term

POLYNOMIAL = ("tanh", "sigmoid")  # s' is a polynomial of s

_GAUSS = ["phi = 0.3989422804014327 * tl.exp(-0.5 * z0 * z0)", "cdf = 0.5 * (1.0 + tl.erf(0.7071067811865476 * z0))"]
_SIGMOID = ["s = sigmoid(z0)", "p = s * sigmoid(-z0)", "w = 1.0 - 2.0 * s"]
_SIGMOID_DERIVATIVES = [
    "p",
    "p * w",
    "p * (1.0 - 6.0 * p)",
    "p * w * (1.0 - 12.0 * p)",
    "p * (1.0 + p * (120.0 * p - 30.0))",
]

# activation -> (preparation, [s, s', s'', ...] as code in z0)
ACTIVATIONS: dict[str, tuple[list[str], list[str]]] = {
    "tanh": (
        ["s = tanh(z0)", "q = s * s", "d = 1.0 - q"],
        [
            "s",
            "d",
            "-2.0 * s * d",
            "d * (6.0 * q - 2.0)",
            "s * d * (16.0 - 24.0 * q)",
            "d * ((120.0 * q - 120.0) * q + 16.0)",
        ],
    ),
    "sigmoid": (_SIGMOID, ["s", *_SIGMOID_DERIVATIVES]),
    "softplus": (_SIGMOID, ["softplus(z0)", "s", *_SIGMOID_DERIVATIVES[:4]]),
    "silu": (
        _SIGMOID,
        ["z0 * s", "s + z0 * p"]
        + [f"{k}.0 * ({_SIGMOID_DERIVATIVES[k - 2]}) + z0 * ({_SIGMOID_DERIVATIVES[k - 1]})" for k in range(2, 6)],
    ),
    "gelu": (
        _GAUSS,
        [
            "z0 * cdf",
            "cdf + z0 * phi",
            "phi * (2.0 - z0 * z0)",
            "phi * z0 * (z0 * z0 - 4.0)",
            "phi * (-4.0 + z0 * z0 * (7.0 - z0 * z0))",
            "phi * z0 * (18.0 + z0 * z0 * (z0 * z0 - 11.0))",
        ],
    ),
    "sin": (["s = tl.sin(z0)", "c = tl.cos(z0)"], ["s", "c", "-s", "-c", "s", "c"]),
    "cos": (["s = tl.sin(z0)", "c = tl.cos(z0)"], ["c", "-s", "-c", "s", "c", "-s"]),
    "exp": (["s = tl.exp(z0)"], ["s"] * 6),
}


def coefficient(term: Term) -> str:
    """`count * coefficient` of a table entry; coefficients are `k0`.. at run time."""
    factors = ([f"{float(term.count)!r}"] if term.count != 1 else []) + (
        [f"k{term.coefficient}"] if term.coefficient is not None else []
    )
    return " * ".join(factors) or "1.0"


def compose(space: ChannelSpace, activation: str, result: str = "a", shift: int = 0) -> list[str]:
    """`z0`.. -> `a0`.. (or the jet of the `shift`-th derivative of the activation)."""
    prepare, derivatives = ACTIVATIONS[activation]
    top = max([1 if len(space) > 1 else 0] + [len(t.factors) for terms in space.composition for t in terms])
    lines = [*prepare, *(f"s{q} = {derivatives[q + shift]}" for q in range(top + 1))]
    lines.append(f"{result}0 = s0")
    for k in range(1, len(space)):
        by_order: dict[int, list[str]] = {}
        for t in space.composition[k]:
            product = " * ".join(f"z{j}" for j in t.factors)
            by_order.setdefault(len(t.factors), []).append(f"{coefficient(t)} * {product}")
        sums = "".join(f" + s{q} * ({' + '.join(products)})" for q, products in sorted(by_order.items()))
        lines.append(f"{result}{k} = s1 * z{k}{sums}")
    return lines


def slope_of_polynomial(space: ChannelSpace, activation: str, k: int) -> str:
    """Channel k of g from the stored jet `a0`..`ak`."""
    linear = "1.0 - a0 * a0" if activation == "tanh" else "a0 - a0 * a0"
    if k == 0:
        return f"g0 = {linear}"
    square = f"2.0 * a0 * a{k}" + "".join(
        f" + {coefficient(t)} * a{t.factors[0]} * a{t.factors[1]}" for t in space.product[k]
    )
    return f"g{k} = -({square})" if activation == "tanh" else f"g{k} = a{k} - ({square})"


def adjoint(space: ChannelSpace, load: dict[int, list[str]]) -> list[str]:
    """`b0`.. (abar) -> `y0`.. (zbar); after the lines `load[k]` g<k> is known. Few blocks stay alive at once."""
    lines = [*load[0], "y0 = g0 * b0"]
    terms: dict[int, list[tuple[int, str]]] = {j: [(0, f"g0 * b{j}")] for j in range(1, len(space))}
    for k in range(1, len(space)):
        for t in space.product[k]:
            i, j = t.factors
            terms[j].append((i, f"{coefficient(t)} * g{i} * b{k}"))
    pending = set(terms)
    for k in range(len(space)):
        if k:
            lines += [*load[k], f"y0 += g{k} * b{k}"]
        for j in sorted(pending, reverse=True):
            if all(i <= k for i, _ in terms[j]):
                pending.discard(j)
                lines.append(f"y{j} = " + " + ".join(code for _, code in terms[j]))
    return lines
