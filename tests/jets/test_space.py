"""Channel spaces: Faa di Bruno and Leibniz against sympy."""

import pytest
import sympy

from pinnfuse.jets.space import ChannelSpace, Operator

x, y = sympy.symbols("x y")
INDICES = [(1, 0), (0, 2), (2, 1), (3, 0), (2, 2), (0, 4), (1, 3)]


def derivative(expression, alpha):
    return sympy.diff(expression, x, alpha[0], y, alpha[1])


def channels(space, expression, values):
    single = [derivative(expression, alpha) for alpha in space.indices]
    summed = [sum(c.subs(values) * derivative(expression, alpha) for alpha, c in o.terms) for o in space.operators]
    return [sympy.expand(e) for e in (*single, *summed)]


def weighted(space, term, values):
    return term.count * (1 if term.coefficient is None else space.coefficients[term.coefficient].subs(values))


def some_operator():
    nu = sympy.Symbol("nu")
    return Operator((((4, 0), sympy.Integer(1)), ((2, 2), 2 * nu), ((0, 1), -nu))), {nu: sympy.Rational(3, 7)}


@pytest.mark.parametrize("alpha", INDICES, ids=str)
def test_space_is_closed_under_lower_derivatives(alpha):
    space = ChannelSpace.spanning(2, [alpha])
    expected = {(i, j) for i in range(alpha[0] + 1) for j in range(alpha[1] + 1)}
    assert set(space.indices) == expected
    assert space.indices[0] == (0, 0)


def test_composition_is_the_chain_rule():
    operator, values = some_operator()
    space = ChannelSpace.spanning(2, INDICES, [operator])
    z = sympy.Rational(1, 3) * x**4 * y + x**2 * y**3 - x * y + y**4 + x**3 + x + 2 * y
    s = sympy.Function("s")
    inner = channels(space, z, values)
    expected = channels(space, s(z), values)
    w = sympy.Symbol("w")
    numbers = {x: sympy.Rational(2, 5), y: sympy.Rational(-3, 4)}
    at = [e.subs(numbers) for e in inner]
    # s is replaced by a function whose derivatives at z_0 are distinct primes, so that no wrong term can cancel
    primes = [sympy.Integer(p) for p in (2, 3, 5, 7, 11)]
    polynomial = sum(p * (w - at[0]) ** k / sympy.factorial(k) for k, p in enumerate(primes))
    for k, terms in enumerate(space.composition):
        got = primes[0] if k == 0 else primes[1] * at[k]
        for term in terms:
            got += weighted(space, term, values) * primes[len(term.factors)] * sympy.prod([at[j] for j in term.factors])
        composed = polynomial.subs(w, z)
        truth = channels(space, composed, values)[k].subs(numbers)
        assert sympy.nsimplify(got - truth) == 0, (k, expected[k])


def test_product_is_the_leibniz_rule():
    operator, values = some_operator()
    space = ChannelSpace.spanning(2, INDICES, [operator])
    f, g = x**4 * y**2 + x * y**4 - 2 * x, y**4 * x**3 + x**2 + y
    a, b, ab = (channels(space, e, values) for e in (f, g, f * g))
    for k, terms in enumerate(space.product):
        got = a[0] * b[0] if k == 0 else a[0] * b[k] + a[k] * b[0]
        for term in terms:
            got += weighted(space, term, values) * a[term.factors[0]] * b[term.factors[1]]
        assert sympy.expand(got - ab[k]) == 0, k


def test_seeds_of_an_operator_are_its_first_order_part():
    space = ChannelSpace.spanning(2, [(1, 0)], [Operator((((1, 0), sympy.Integer(1)), ((0, 2), -sympy.Symbol("nu"))))])
    assert space.indices == ((0, 0), (1, 0), (0, 1))
    assert space.seeds == (((0, None),), ((1, None),), ((0, None),))


def test_a_laplacian_in_100_dimensions_has_102_channels():
    one = sympy.Integer(1)
    members = [(tuple(2 * (i == j) for j in range(100)), one) for i in range(100)]
    space = ChannelSpace.spanning(100, [], [Operator(tuple(members))])
    assert len(space) == 102
    assert len(space.composition[-1]) == 100
