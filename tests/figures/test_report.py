"""Every shape of problem gets its figures; that they are good to look at is for eyes."""

import types

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from pinnfuse.figures import Report
from pinnfuse.figures.curves import loss_curves
from pinnfuse.figures.style import POSITIVE, SIGNED, error_limits, limits, symbol

STEPS = np.arange(1, 200, 10)
SERIES = {
    "loss/total": (STEPS, 1.0 / STEPS),
    "loss/momentum_x": (STEPS, 0.5 / STEPS),
    "loss/lid": (STEPS, 0.5 / STEPS),
    "val/rel_l2/u": ([100, 199], [0.5, 0.01]),
    "lr": (STEPS, np.ones_like(STEPS)),
}


def problem(coordinates, fields, solution, points=9, up_to_constant=()):
    grid = {c: np.linspace(0, 1, points) for c in coordinates}
    return types.SimpleNamespace(
        pde=types.SimpleNamespace(coordinates=tuple(coordinates), fields=tuple(fields), equations={"momentum_x": 0}),
        reference=types.SimpleNamespace(grid=lambda: grid, solution=solution),
        up_to_constant=up_to_constant,
        evaluation_points=lambda: (np.random.default_rng(0).random((50, len(coordinates))),),
    )


def waves(count):
    return lambda p: np.stack([np.sin(3 * p.sum(1) + k) for k in range(count)], 1)


CASES = [
    ("x", "u", {"u"}, set()),
    ("tx", "u", {"u", "u_cuts"}, {"u"}),
    ("xy", "u", {"u"}, set()),
    ("xy", "uvp", {"u", "v", "p", "speed", "centre_lines"}, set()),
    ("txy", "uv", {"u", "v", "speed"}, {"u", "v"}),
    ("txyz", "u", {"u"}, {"u"}),
    ("abcdef", "u", {"u"}, set()),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("coordinates", "fields", "pictures", "gifs"), CASES)
def test_figures_by_shape(tmp_path, coordinates, fields, pictures, gifs):
    count = len(fields)
    case = problem(coordinates, fields, waves(count))
    files = Report(case, lambda p: 1.01 * waves(count)(p), tmp_path / "f").draw(SERIES, [(0, "adam"), (120, "lbfgs")])
    assert {p.stem for p in files.values() if p.suffix == ".png"} == pictures | {"loss", "rel_l2"}
    assert {p.stem for p in files.values() if p.suffix == ".gif"} == gifs
    for path in files.values():
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("L"))
            assert min(pixels.shape) > 100 and pixels.std() > 5  # something is drawn
            if path.suffix == ".gif":
                assert image.n_frames == 9
    assert not plt.get_fignums()  # no global state


def test_animations_can_be_left_out(tmp_path):
    case = problem("tx", "u", waves(1))
    assert {p.suffix for p in Report(case, waves(1), tmp_path, animations=False).draw({}).values()} == {".png"}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, 1.0], ids=["zero", "one"])
def test_a_field_without_structure_or_with_masked_points(tmp_path, value):
    def flat(p):
        out = np.full((len(p), 2), value)
        out[p[:, 0] < 0.2] = np.nan
        return out

    Report(problem("xy", "uv", flat), lambda p: np.full((len(p), 2), value), tmp_path).draw({})


def test_a_field_up_to_a_constant_is_shifted(tmp_path):
    case = problem("xy", "up", waves(2), up_to_constant=("p",))
    report = Report(case, lambda p: waves(2)(p) + 5, tmp_path)
    prediction, reference = report._both(np.random.rand(40, 2))
    np.testing.assert_allclose(prediction[:, 1], reference[:, 1], atol=1e-12)
    np.testing.assert_allclose(prediction[:, 0], reference[:, 0] + 5)


@pytest.mark.filterwarnings("error")
def test_a_run_of_one_step(tmp_path):
    series = {"loss/total": ([1], [1.0]), "val/rel_l2/u": ([1], [float("nan")]), "loss/momentum_x": ([1], [0.0])}
    Report(problem("x", "u", waves(1)), waves(1), tmp_path).draw(series, [(0, "adam")])


def test_one_corner_leaves_the_other_errors_visible():
    error = np.linspace(1e-4, 2e-4, 10_000)
    assert error_limits(error) == (2e-4, "")
    error[-5:] = 1e-2
    top, beyond = error_limits(error)
    assert top == pytest.approx(2e-4, rel=0.02) and beyond == ", up to 1.0e-02"
    assert error_limits(np.zeros(9)) == (1.0, "") and error_limits(np.full(9, np.nan)) == (1.0, "")


def test_a_total_does_not_hide_its_only_term():
    alone = {"loss/total": (STEPS, 1.0 / STEPS), "loss/burgers": (STEPS, 1.0 / STEPS)}
    assert [line.get_label() for line in loss_curves(alone, ["burgers"]).axes[0].lines] == ["burgers"]
    weighed = alone | {"loss/burgers": (STEPS, 0.5 / STEPS)}
    assert len(loss_curves(weighed, ["burgers"]).axes[0].lines) == 2


def test_colours_follow_the_sign():
    assert limits(np.array([-1.0, 2.0]))[0] == SIGNED and limits(np.array([-1.0, 2.0]))[1].vmin == -2.0
    assert limits(np.array([0.0, 2.0]))[0] == POSITIVE
    assert limits(np.array([-1e-3, 2.0]))[0] == POSITIVE  # an undershoot is no sign change


@pytest.mark.parametrize(("name", "text"), [("u", "u"), ("theta", "\\theta"), ("u_x", "u_{x}"), ("h", "h")])
def test_names_as_mathematics(name, text):
    assert symbol(name) == text
