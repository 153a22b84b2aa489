"""Launch choices on disk: found again, never believed blindly; tuning passes over what fails."""

import json

import pytest
import torch
import triton
from torch import nn

import pinnfuse
from pinnfuse.jets import recognise
from pinnfuse.jets.plan import plan as jet_plan
from pinnfuse.kernels import jets
from pinnfuse.kernels.jets import choices
from pinnfuse.kernels.jets.config import Launch, launch

from .cases import PDES, mlp  # noqa: TID251 - this folder, not the library's

CHOICE = Launch(rows=32, block=32, step=32, gradient_block=32, registers=128)


@pytest.fixture
def file(monkeypatch, tmp_path):
    monkeypatch.setenv("PINNFUSE_CACHE", str(tmp_path))
    return tmp_path / "launches.json"


def test_found_again(file):
    assert choices.read("a card") is None
    choices.write("a card", CHOICE)
    choices.write("another", Launch())
    assert choices.read("a card") == CHOICE
    assert choices.read("another") == Launch()


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: "{",
        lambda entry: "[]",
        lambda entry: json.dumps({"a card": 3}),
        lambda entry: json.dumps({"a card": {k: v for k, v in entry.items() if k != "rows"}}),
        lambda entry: json.dumps({"a card": entry | {"from_a_later_version": 1}}),
        lambda entry: json.dumps({"a card": entry | {"rows": "64"}}),
        lambda entry: json.dumps({"a card": entry | {"rows": -64}}),
        lambda entry: json.dumps({"a card": entry | {"forward": [4]}}),
    ],
)
def test_a_damaged_file_is_ignored(damage, file):
    choices.write("a card", CHOICE)
    file.write_text(damage(json.loads(file.read_text())["a card"]))
    assert choices.read("a card") is None
    choices.write("a card", CHOICE)  # and replaced by the next choice
    assert choices.read("a card") == CHOICE


def test_a_folder_that_cannot_be_written_costs_other_processes_the_choice(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PINNFUSE_CACHE", str(tmp_path / "file" / "folder"))
    with caplog.at_level("WARNING", logger="pinnfuse"):
        assert choices.tune("a card", [CHOICE], lambda option: 1.0) == CHOICE
    assert "is not kept" in caplog.text and "Choose a folder" in caplog.text
    assert choices.known("a card") == CHOICE and choices.read("a card") is None


def test_a_key_names_all_that_a_choice_depends_on():
    device = torch.device("cpu")
    keys = {choices.key(w, c, p, device) for w in (64, 128) for c in (3, 4) for p in ("float32", "tf32", "float64")}
    assert len(keys) == 12
    assert all(triton.__version__ in k for k in keys)
    assert choices.key(50, 3, "float32", device) == choices.key(64, 3, "float32", device)


def test_tuning_takes_the_fastest_that_runs(file):
    def measure(option: Launch) -> float:
        if option.rows == 64:
            raise triton.OutOfResources(300, 200, "shared memory")
        return 1.0 / option.block

    options = choices.candidates(launch(128, 4, "float32"), 128)
    best = choices.tune("a card", options, measure)
    assert best.rows == 32
    assert choices.read("a card") == best


def test_a_schedule_is_measured_where_channels_are_many(where, file, monkeypatch):
    engines = []
    monkeypatch.setattr(choices, "tunes", lambda device: True)
    monkeypatch.setattr(jets, "_seconds", lambda e, *_: engines.append(type(e)) or float(type(e) is jets.TritonEngine))
    net, points = mlp(2, [40], 1, nn.Tanh).to(where), torch.rand(9, 2, device=where)
    loss_fn = pinnfuse.FusedResidualLoss(PDES["biharmonic"], backend="triton").to(where)
    loss_fn(net, points)
    assert set(engines) == {jets.TritonEngine, jets.ScheduledEngine}
    assert "each way, then one kernel" in loss_fn.explain(net, points).reason


def test_every_candidate_gives_the_same_gradients(where):
    pde = PDES["burgers"]
    net = mlp(2, [40, 40], 1, nn.Tanh).to(where)
    points = torch.rand(70, 2, device=where)
    program, plan = recognise(net, 2), jet_plan(pde)
    found = []
    for option in choices.candidates(launch(40, 3, "float32"), 40):
        engine = jets.TritonEngine(
            program.program, program.operands(net), plan.space, plan.outputs, (-0.01,), plan, "float32", option
        )
        gradient = torch.ones(len(plan.outputs), 70, device=where)
        found.append(torch.cat([g.flatten() for g in engine.adjoint(points, gradient, [True] * 6)]))
    assert len(found) >= 5
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-4, atol=1e-4)


def test_the_first_call_of_a_shape_tunes_and_the_second_finds_it(where, file, monkeypatch):
    measured = []
    monkeypatch.setattr(choices, "tunes", lambda device: True)
    monkeypatch.setattr(jets, "_seconds", lambda e, *_: measured.append(e.config) or float(e.config.rows))
    net, points = mlp(2, [16], 1, nn.Tanh).to(where), torch.rand(20, 2, device=where)
    loss_fn = pinnfuse.FusedResidualLoss(PDES["burgers"], backend="triton").to(where)
    loss_fn(net, points)
    count = len(measured)
    assert count >= 3
    loss_fn(net, points)
    assert len(measured) == count
    name = choices.key(16, 3, "float32", where)
    assert choices.read(name).rows == 32
