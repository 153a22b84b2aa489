import pytest

from pinnfuse import problems


def test_names_in_order():
    names = problems.available()
    assert names["navier_stokes"][0] == "lid_driven_cavity"
    for pde, cases in names.items():
        assert problems.get(pde).name == cases[0]
        for name in cases:
            problem = problems.get(pde, name)
            assert (problem.pde_name, problem.name) == (pde, name) and problem.title
            assert set(problems.options(pde, name)) >= set()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: problems.get("burger"), "Did you mean 'burgers'"),
        (lambda: problems.get("kovasznay"), "is a problem of 'navier_stokes'"),
        (lambda: problems.get("navier_stokes", "taylor-green"), "Did you mean 'taylor_green'"),
        (lambda: problems.get("kdv", dd=1.0), "no option 'dd'. Did you mean 'd'"),
        (lambda: problems.get("kdv", d="large"), "`d` must be float; got 'large'"),
        (lambda: problems.get("kdv", d=float("nan")), "`d` must be finite"),
        (lambda: problems.get("kdv", d=True), "`d` must be float; got True"),
        (lambda: problems.get("kdv", d=1e-6), "at least 4e-4"),
        (lambda: problems.get("helmholtz", a1=1.5), "`a1` must be int"),
        (lambda: problems.get("poisson", "poisson_nd", dimension=0), "between 1 and 100"),
        (lambda: problems.get("navier_stokes", reynolds=1e5), r"\[1, 1000\]"),
        (lambda: problems.get("heat", alpha=-1), "positive"),
        (lambda: problems.get("navier_stokes", "cylinder_wake", file=3), "`file` must be str or NoneType"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_options_reach_the_equation():
    assert problems.get("kdv", d=0.022**2).pde.parameters["d"].value == 0.022**2
    assert problems.get("heat", alpha=2).pde.parameters["alpha"].value == 2.0
    assert problems.get("poisson", "poisson_nd", dimension=12).pde.coordinates[-1] == "x12"


def test_hundred_dimensions():
    problem = problems.get("poisson", "poisson_nd", dimension=100)
    assert len(problem.pde.derivatives) == 100 and problem.domain.sample(4).shape == (4, 100)
    points, data = problem.conditions[0].sample(256)
    assert points.shape == (256, 100) and ((points == 0) | (points == 1)).any(1).all()


def test_the_headline_is_the_metric_of_several_fields():
    assert problems.get("navier_stokes").headline == ("velocity",)
    assert problems.get("schrodinger").headline == ("h",) and problems.get("heat").headline == ("u",)
