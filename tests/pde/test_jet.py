"""Jets and their names."""

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinnfuse.pde import Jet, parse_jet
from pinnfuse.pde.jet import MAX_ORDER


@pytest.mark.parametrize(
    "text, index",
    [("u", (0, 0, 0)), ("u_t", (1, 0, 0)), ("u_txx", (1, 2, 0)), ("u_xy", (0, 1, 1)), ("u_yyyy", (0, 0, 4))],
)
def test_short_names(text: str, index: tuple[int, ...]) -> None:
    jet = parse_jet(text, "u v", "t x y")
    assert (jet.field, jet.index, str(jet), jet.order) == ("u", index, text, sum(index))


def test_the_order_of_letters_does_not_matter() -> None:
    assert parse_jet("u_yxt", "u", "t x y") == parse_jet("u_txy", "u", "t x y") == Jet("u", (1, 1, 1))


def test_long_names_win_over_their_beginnings() -> None:
    assert parse_jet("u_theta", "u", "t theta").index == (0, 1)
    assert parse_jet("u_thetathetat", "u", "t theta").index == (1, 2)
    numbered = [f"x{i}" for i in range(1, 101)]
    jet = parse_jet("u_x10x100", ["u"], numbered)
    assert [numbered[axis] for axis, n in enumerate(jet.index) if n] == ["x10", "x100"]


def test_underscores_in_names() -> None:
    assert parse_jet("psi_re_x_1x_1", ["psi", "psi_re"], ["t", "x_1"]) == Jet("psi_re", (0, 2))


def test_real_ambiguity_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ambiguous.*D\(u, xx\) or D\(u, x, 2\)"):
        parse_jet("u_xx", "u", "x xx")
    assert parse_jet("u_x", "u", "x xx").index == (1, 0)
    assert str(Jet("u", (2, 0), ("x", "xx"))) == "D(u, x, 2)"  # a name that would be ambiguous is never printed


@pytest.mark.parametrize(
    "text", ["w", "u_", "u_z", "u_xz", "_x", "", "u__x", "U_x", "u_" + "x" * (MAX_ORDER + 1), None]
)
def test_no_jet(text: str) -> None:
    with pytest.raises(ValueError, match="parse_jet: `text` must be a field"):
        parse_jet(text, "u v", "t x")


def test_unknown_coordinates_are_named() -> None:
    with pytest.raises(ValueError, match="'u' is a field, but 'z' is not spelled"):
        parse_jet("u_z", "u v", "t x")


@pytest.mark.parametrize("index", [(-1, 0), (0.5, 0), (True, 0), (1,)])
def test_bad_index(index: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Jet: `index`"):
        Jet("u", index, ("t", "x"))


def test_value_semantics() -> None:
    jet = Jet("u", (0, 2), ("t", "x"))
    assert jet == Jet("u", (0, 2), ("s", "y")) and hash(jet) == hash(Jet("u", (0, 2)))
    for same in (pickle.loads(pickle.dumps(jet)), copy.deepcopy(jet)):
        assert same == jet and str(same) == "u_xx"
    assert repr(jet) == "Jet(field='u', index=(0, 2))"
    assert jet.shifted(0) == Jet("u", (1, 2)) and sorted([jet, Jet("u", (0, 1))])[0].order == 1


names = st.lists(st.text("abxyt12", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)


@settings(deadline=None)
@given(names, st.data())
def test_a_printed_name_is_read_back(coordinates: list[str], data: st.DataObject) -> None:
    index = data.draw(st.tuples(*[st.integers(0, 2)] * len(coordinates)))
    text = str(Jet("f_b", index, tuple(coordinates)))
    if not text.startswith("D("):
        assert parse_jet(text, ["f_b"], coordinates) == Jet("f_b", index)
