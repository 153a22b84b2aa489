from pathlib import Path

import numpy as np
import pytest
import torch

from pinnfuse import problems
from pinnfuse.residual import FusedResidualLoss

SAMPLE = Path(__file__).parents[3] / "shared" / "reference" / "cylinder_wake" / "NSexternel_sample.csv"
COLUMNS = ("x", "y", "t", "u", "v")


def get(file, **options):
    return problems.get("navier_stokes", "cylinder_wake", file=None if file is None else str(file), **options)


def table(n=40, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(0, 1, n) for name in (*COLUMNS, "p")}


def write_csv(path, columns):
    rows = np.stack(list(columns.values()), 1)
    path.write_text("\n".join([",".join(columns), *(",".join(map(repr, map(float, row))) for row in rows)]) + "\n")
    return path


@pytest.mark.parametrize("kind", ["csv", "npz"])
@pytest.mark.parametrize("pressure", [True, False], ids=["with p", "without p"])
def test_columns_are_read_in_any_order(tmp_path, kind, pressure):
    columns = table()
    shuffled = {name: columns[name] for name in ("v", "t", "p", "x", "u", "y") if pressure or name != "p"}
    shuffled["area"] = np.zeros(40)
    path = tmp_path / f"wake.{kind}"
    if kind == "csv":
        write_csv(path, shuffled)
    else:
        np.savez(path, **shuffled)
    problem = get(path)
    points, data = problem.conditions[0].sample(40, dtype=torch.float64)
    assert np.allclose(points.numpy(), np.stack([columns[c] for c in ("t", "x", "y")], 1), rtol=0, atol=0)
    assert np.array_equal(data["observed_u"].numpy(), columns["u"])
    _, values, mask = problem.evaluation_points()
    assert np.array_equal(values[:, 1], columns["v"]) and mask[:, 2].all() == pressure
    assert problem.domain.contains(points).all()
    assert list(problem.reference.on_grid()) == ["u", "v", "p"]


def test_parameters_are_trained():
    problem = get(None)
    trained = [p.name for p in problem.pde.parameters.values() if p.trainable]
    assert trained == ["lambda_1", "lambda_2"] and problem.true_parameters == {"lambda_1": 1.0, "lambda_2": 0.01}
    assert get(None, reynolds=None).true_parameters == {}
    assert len(list(FusedResidualLoss(problem.pde).parameters())) == 2


def test_without_a_file_it_can_be_listed_but_not_sampled():
    problem = get(None)
    assert problem.title
    for call in (lambda: problem.conditions[0].sample(4), problem.evaluation_points, problem.reference.grid):
        with pytest.raises(ValueError, match="needs your measurements: option `file`"):
            call()


def damaged(tmp_path, how):
    columns = table()
    path = tmp_path / "wake.csv"
    if how == "missing":
        return path
    if how == "kind":
        path = tmp_path / "wake.txt"
        path.write_text("x")
    elif how == "column":
        del columns["v"]
        write_csv(path, columns)
    elif how == "text":
        write_csv(path, columns)
        path.write_text(path.read_text().replace("\n", "\n0,0,zero,0,0,0\n", 1))
    elif how == "short row":
        write_csv(path, columns)
        path.write_text(path.read_text() + "0.1,0.2\n")
    elif how == "nan":
        columns["u"][3] = np.nan
        write_csv(path, columns)
    elif how == "few":
        write_csv(path, {name: column[:3] for name, column in columns.items()})
    elif how == "empty":
        path.write_text("")
    elif how == "binary":
        path.write_bytes(bytes(range(128, 256)) * 9)
    elif how == "flat":
        columns["t"][:] = 1.0
        write_csv(path, columns)
    elif how == "npz":
        path = tmp_path / "wake.npz"
        np.savez(path, **columns)
        path.write_bytes(path.read_bytes()[:500])
    elif how == "bare":  # one array, which np.load returns instead of an archive
        path = tmp_path / "wake.npz"
        with path.open("wb") as file:
            np.save(file, columns["u"])
    elif how == "array":
        path = tmp_path / "wake.npz"
        np.savez(path, **{name: column for name, column in columns.items() if name != "v"})
    elif how == "objects":
        path = tmp_path / "wake.npz"
        np.savez(path, x=np.array([{}], dtype=object))
    elif how == "complex":
        path = tmp_path / "wake.npz"
        np.savez(path, **{name: column * (1 + 1j) for name, column in columns.items()})
    elif how == "lengths":
        path = tmp_path / "wake.npz"
        np.savez(path, **{**columns, "u": np.zeros(7)})
    return path


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("missing", "there is no file"),
        ("kind", "must be a .csv or .npz"),
        ("column", "lacks the columns v; it has"),
        ("text", "line 2: column t must be a number; got 'zero'"),
        ("short row", "line 42: column t must be a number; got nothing"),
        ("nan", "column u: 1 values are not finite, the first in row 4"),
        ("few", "has 3 rows; at least 10"),
        ("empty", "lacks the columns t, x, y, u, v; it has none"),
        ("binary", "not readable as CSV text"),
        ("flat", "the same t = 1"),
        ("npz", "not a readable .npz"),
        ("bare", "not a readable .npz"),
        ("array", "lacks the arrays v; it has"),
        ("objects", "not a readable .npz"),
        ("lengths", "differ in length"),
        ("complex", "array t must hold real numbers; got complex128"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(tmp_path, how, words):
    with pytest.raises(ValueError, match=words):
        get(damaged(tmp_path, how))


@pytest.mark.parametrize("reynolds", [0.0, -100.0, float("nan")])
def test_the_reynolds_number_is_positive(reynolds):
    with pytest.raises(ValueError, match="reynolds"):
        problems.get("navier_stokes", "cylinder_wake", reynolds=reynolds)


@pytest.mark.skipif(not SAMPLE.is_file(), reason="no collected reference files here")
def test_the_public_wake():
    problem = get(SAMPLE)
    points, data = problem.conditions[0].sample(5000)
    assert points.shape == (5000, 3) and set(data) == {"observed_u", "observed_v"}
    assert problem.domain.bounds["t"][1] == pytest.approx(19.9)
    _, _, mask = problem.evaluation_points()
    assert mask.all()  # the file has a pressure
