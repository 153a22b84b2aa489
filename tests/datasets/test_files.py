"""A user's own files: what is accepted, and what is refused before training with expected, got and remedy."""

import json
import shutil

import numpy as np
import pytest
import torch

from pinnfuse import tasks
from pinnfuse.datasets import Samples, generated, load, split

N = 6


@pytest.fixture(scope="module")
def darcy():
    return tasks.get("darcy", points=8, centring="cell")


@pytest.fixture(scope="module")
def burgers():
    return tasks.get("burgers", points=16, levels=3, ahead=2, step=0.05, nu=0.1)


@pytest.fixture(scope="module")
def k_and_u(darcy):
    return darcy.generate(0, N, 0)


def rows(samples: Samples) -> dict[str, torch.Tensor]:
    return samples.rows(torch.arange(len(samples)))


def test_a_pt_file_of_ones_own(darcy, k_and_u, tmp_path):
    torch.save({name: a.double() for name, a in k_and_u.items()} | {"note": "anything"}, tmp_path / "mine.pt")
    found = rows(load(tmp_path / "mine.pt", darcy))
    assert list(found) == ["k", "u"] and all(torch.equal(found[n], k_and_u[n]) for n in found)
    assert found["u"].dtype == torch.float32


def test_an_hdf5_file_of_ones_own(burgers, tmp_path):
    h5py = pytest.importorskip("h5py")
    fields = burgers.generate(0, N, 0)["fields"]
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        file["fields"], file["comment"] = fields.numpy(), "text"
    assert torch.equal(rows(load(tmp_path / "mine.h5", burgers))["fields"], fields)


def test_pdebenchs_darcy_layout(darcy, k_and_u, tmp_path):
    h5py = pytest.importorskip("h5py")
    centres = (np.arange(8) + 0.5) / 8
    with h5py.File(tmp_path / "2D_DarcyFlow_beta1.0_Train.hdf5", "w") as file:
        file["nu"], file["tensor"] = k_and_u["k"].numpy(), k_and_u["u"].numpy()[:, None]
        file["x-coordinate"] = file["y-coordinate"] = centres.astype(np.float32)
    found = rows(load(tmp_path / "2D_DarcyFlow_beta1.0_Train.hdf5", darcy))
    assert all(torch.equal(found[n], k_and_u[n]) for n in found)
    nodes = tasks.get("darcy", points=8)
    with pytest.raises(ValueError, match=r"8 points along x from 0.0625 .* expected 8 from 0.111111 .*centring cell"):
        load(tmp_path / "2D_DarcyFlow_beta1.0_Train.hdf5", nodes)


def test_pdebenchs_burgers_layout(burgers, tmp_path):
    h5py = pytest.importorskip("h5py")
    fields = burgers.generate(0, N, 0)["fields"]
    path = tmp_path / "1D_Burgers_Sols_Nu0.1.hdf5"
    with h5py.File(path, "w") as file:
        file["tensor"] = fields[:, :, 0].numpy()
        file["x-coordinate"] = ((np.arange(16) + 0.5) / 16).astype(np.float32)
        file["t-coordinate"] = (0.05 * np.arange(5)).astype(np.float32)  # one more than levels, as PDEBench has
    assert torch.equal(rows(load(path, burgers))["fields"], fields)
    with pytest.raises(ValueError, match=r"levels 0.05 apart; expected 0.1. Add --options.step 0.05"):
        load(path, tasks.get("burgers", points=16, levels=3, ahead=2, step=0.1))


def test_a_folder_of_shards(darcy, tmp_path):
    made = generated(darcy, "train", 20, folder=tmp_path, shard=16)
    found = load(tmp_path, darcy)
    assert len(found) == 20 and torch.equal(rows(found)["u"], rows(made)["u"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "task.json").unlink(), "lacks task.json"),
        (lambda f: (f / "task.json").write_text("{"), "task.json is damaged"),
        (lambda f: (f / "task.json").write_text('{"task": "darcy", "options": null}'), "task.json is damaged"),
        (lambda f: [p.unlink() for p in f.glob("*.pt")], "lacks shards"),
        (lambda f: (f / "train-00000.json").unlink(), "train-00000.pt is damaged"),
        (lambda f: (f / "train-00000.pt").write_bytes(b"junk"), "its SHA-256 is not the one in train-00000.json"),
        (
            lambda f: (f / "task.json").write_text(json.dumps({"task": "burgers", "options": {}})),
            "samples of 'burgers'; expected 'darcy'. Use --pde burgers",
        ),
    ],
    ids=["no note", "broken note", "no options", "no shards", "no sum", "other bytes", "other task"],
)
def test_a_folder_that_is_not_whole_is_refused(darcy, tmp_path, change, message):
    generated(darcy, "train", 16, folder=tmp_path / "a", shard=16)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    change(tmp_path / "b")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "b", darcy)


def test_a_folder_of_other_options_names_them(darcy, tmp_path):
    generated(darcy, "train", 16, folder=tmp_path, shard=16)
    other = tasks.get("darcy", points=8, centring="cell", high=20.0)
    with pytest.raises(ValueError, match=r"high = 12.0 \(expected 20.0\). Add --options.high 12.0"):
        load(tmp_path, other)


def broken(arrays, name):
    u = arrays["u"].clone()
    if name == "nan":
        u[3, 2, 2] = float("nan")
    return {
        "nan": {"k": arrays["k"], "u": u},
        "fewer": {"k": arrays["k"], "u": u[:3]},
        "shape": {"k": arrays["k"][:, :6], "u": u[:, :6]},
        "names": {"x": arrays["k"], "y": u},
        "no arrays": {"k": "text", "u": [1, 2]},
        "negative": {"k": -arrays["k"], "u": u},
        "list": [arrays["k"]],
        "complex": {"k": arrays["k"] + 0j, "u": u},
        "sparse": {"k": arrays["k"].to_sparse(), "u": u},
        "elsewhere": {"k": arrays["k"].to("meta"), "u": u},
        "number": {"k": torch.tensor(1.0), "u": u},
    }[name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nan", "'u' in .* must be finite; sample 3 holds NaN or Inf. Leave it out"),
        ("fewer", "one number of samples; got {'k': 6, 'u': 3}"),
        ("shape", r"'k' in .* must be \[N, 8, 8\]; got \[6, 6, 8\]. Set --options.points"),
        ("names", r"must hold 'k' and 'u', or PDEBench's names for 'darcy'.*; got .*Rename"),
        ("no arrays", "must hold 'k' and 'u'"),
        ("negative", "'k' in .* must be > 0; its least is -12"),
        ("list", "must hold a dictionary of tensors; got list"),
        ("complex", r"must hold 'k' and 'u', .* as arrays of real numbers"),
        ("sparse", r"must hold 'k' and 'u', .* as arrays of real numbers"),
        ("elsewhere", r"must hold 'k' and 'u', .* as arrays of real numbers"),
        ("number", r"must hold 'k' and 'u', .* as arrays of real numbers"),
    ],
)
def test_foreign_files_are_refused(darcy, k_and_u, tmp_path, name, message):
    torch.save(broken(k_and_u, name), tmp_path / "mine.pt")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "mine.pt", darcy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensor": torch.rand(5)}, "must hold 'fields'"),
        ({"x-coordinate": torch.rand(0)}, "has 0 points along x from nan"),
        ({"x-coordinate": torch.rand(16, 2)}, "has 16 x 2 points along x"),
        ({"t-coordinate": torch.tensor([0.0, float("nan")])}, "levels nan apart; expected 0.05. Mend its t-coordinate"),
    ],
    ids=["one axis", "no points", "two axes", "no time"],
)
def test_layouts_of_pdebench_that_are_wrong(burgers, tmp_path, change, message):
    torch.save({"tensor": torch.rand(5, 4, 16)} | change, tmp_path / "mine.pt")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "mine.pt", burgers)


def test_too_few_levels_are_refused(burgers, tmp_path):
    torch.save({"fields": torch.zeros(4, 2, 1, 16)}, tmp_path / "mine.pt")
    with pytest.raises(ValueError, match=r"'fields' in .* must be \[N, >= 3, 1, 16\]; got \[4, 2, 1, 16\]"):
        load(tmp_path / "mine.pt", burgers)


@pytest.mark.parametrize("suffix", ["pt", "h5"])
def test_damaged_files_are_refused(darcy, k_and_u, tmp_path, suffix):
    path = tmp_path / f"mine.{suffix}"
    if suffix == "pt":
        torch.save(k_and_u, path)
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            file["k"], file["u"] = k_and_u["k"].numpy(), k_and_u["u"].numpy()
    path.write_bytes(path.read_bytes()[:-900])
    with pytest.raises(ValueError, match="is damaged, or no"):
        load(path, darcy)


def test_one_wrong_bit_is_damage(darcy, k_and_u, tmp_path):
    path = tmp_path / "mine.pt"
    torch.save(k_and_u, path)
    content = bytearray(path.read_bytes())
    place = content.find(k_and_u["u"].contiguous().numpy().tobytes()[:64])
    content[place + 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="is damaged.*checksum of"):
        load(path, darcy)


def test_other_objects_are_named_without_advice_to_run_them(darcy, tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "mine.pt")
    with pytest.raises(ValueError, match=r"\(it holds other objects\)\. Write it anew"):
        load(tmp_path / "mine.pt", darcy)


def test_what_is_no_data_at_all_is_refused(darcy, tmp_path):
    with pytest.raises(ValueError, match="there is nothing at .*leave it out"):
        load(tmp_path / "absent", darcy)
    (tmp_path / "mine.csv").write_text("1,2")
    with pytest.raises(ValueError, match=r"must end in .pt, .h5 or .hdf5"):
        load(tmp_path / "mine.csv", darcy)


def test_without_h5py_the_message_says_so(darcy, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "mine.h5").write_bytes(b"")
    with pytest.raises(ValueError, match="needs h5py, which is not installed. pip install h5py"):
        load(tmp_path / "mine.h5", darcy)


def test_held_out_samples_are_never_trained_on(darcy, k_and_u):
    samples = Samples([k_and_u])
    train, held_out = split(samples, darcy, train=100, held_out=2)
    assert (len(train), len(held_out)) == (4, 2)
    assert torch.equal(rows(held_out)["u"], k_and_u["u"][4:]) and torch.equal(rows(train)["u"], k_and_u["u"][:4])
    assert len(split(samples, darcy, train=3, held_out=2)[0]) == 3
    with pytest.raises(ValueError, match="needs at least 7 samples, 6 of them held out; got 6"):
        split(samples, darcy, train=3, held_out=6)


def test_a_public_file_of_other_names_is_refused(darcy, shared_reference):
    """Its equation's constants are not known, so it must not meet our residual by accident."""
    with pytest.raises(ValueError, match=r"must hold 'k' and 'u'.*got \['x', 'y'\]"):
        load(shared_reference / "darcy" / "darcy_test_16.pt", darcy)
