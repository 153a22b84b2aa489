"""`pinnfuse verify` finds a seeded fault, says what a compiler said, and covers every problem."""

import json
from dataclasses import replace

import pytest
import torch

from pinnfuse import backends, models, problems, verification
from pinnfuse.cli.main import main
from pinnfuse.grid import registry
from pinnfuse.jets import unary
from pinnfuse.verification import cases as all_cases
from pinnfuse.verification import runner as verify


def only(monkeypatch: pytest.MonkeyPatch, *wanted: tuple[str, str]) -> None:
    chosen = [case for case in all_cases.cases(17) if case[:2] in wanted]
    assert len(chosen) == len(wanted)
    monkeypatch.setattr(verify, "cases", lambda count: iter(chosen))
    monkeypatch.setattr(verification.operators, "OPERATORS", {})


def test_every_problem_activation_and_network_is_there() -> None:
    found = list(all_cases.cases(3))
    assert {name for names in problems.available().values() for name in names} <= {case[0] for case in found}
    networks = {case[1] for case in found if case[0] == "all features"}
    assert set(models.ACTIVATIONS) < networks
    assert any(p.trainable for case in found for p in case[2].parameters.values())


def test_a_sound_library_passes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    only(monkeypatch, ("all features", "tanh"), ("burgers", "mlp, hard constraints"))
    assert main(["verify", "--quick", "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert "0 failed" in text and "problems" in text and "--full" in text
    assert main(["verify", "--quick", "--device", "cpu", "--full"]) == 0
    assert "burgers, mlp, hard constraints" in capsys.readouterr().out


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_wrong_derivative_of_one_activation_is_found(
    order: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    true = unary._tanh

    def wrong(z: torch.Tensor, n: int, *memory: object) -> unary.Derivatives:
        derivatives = true(z, n, *memory)
        if n >= order:
            derivatives[order] = derivatives[order] * (1 + 1e-4)
        return derivatives

    for table in (value for value in vars(unary).values() if isinstance(value, dict) and value.get("tanh") is true):
        monkeypatch.setitem(table, "tanh", wrong)
    only(monkeypatch, ("all features", "tanh"), ("all features", "sin"))
    assert main(["verify", "--quick", "--json", "--device", "cpu"]) == 1
    rows = json.loads(capsys.readouterr().out)
    failed = {(row["network"], row["path"], row["dtype"]) for row in rows if row["status"] == "failed"}
    assert failed == {("tanh", "closed form", "float32"), ("tanh", "closed form", "float64")}


def test_a_compiler_error_is_caught_once_with_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    choose, tried = backends.choose, []

    def broken(backend: str, *args: object) -> backends.Choice:
        if backend == "triton":
            tried.append(backend)
            raise RuntimeError("PassManager::run failed")
        return choose(backend, *args)

    monkeypatch.setattr(backends, "choose", broken)
    only(monkeypatch, ("all features", "tanh"), ("all features", "sin"))
    rows = verify.run(torch.device("cpu"), quick=True)
    failed = [row for row in rows if row.status == "failed"]
    assert len(tried) == len(failed) == 1
    assert "PassManager::run failed" in failed[0].note
    assert f"torch {torch.__version__}" in failed[0].note and "triton " in failed[0].note
    assert {row.status for row in rows if row.path == "triton"} == {"failed", "skipped"}


def test_nan_is_a_failure() -> None:
    nan = torch.tensor([1.0, float("nan")])
    assert not verification.relative(nan, torch.ones(2)) <= 1.0
    assert verification.allowed(1e-7, torch.float32) == 3e-6
    assert verification.allowed(1e-3, torch.float32) == pytest.approx(1e-2)


def test_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--device", "abacus"]) == 1
    assert "--device" in capsys.readouterr().err


def test_a_wrong_operator_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    entry = registry.OPERATORS["gradient"]
    run = entry.run

    def wrong(grid, u, backend="auto"):
        found = run(grid, u, backend=backend)
        return found * (1 + 1e-4) if u.dtype == torch.float32 else found

    monkeypatch.setattr(verification.operators, "OPERATORS", {"gradient": replace(entry, run=wrong)})
    assert main(["verify", "--quick", "--json", "--part", "grid", "--device", "cpu"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert {row["dtype"] for row in rows if row["status"] == "failed"} == {"float32"}
    assert {row["status"] for row in rows if row["backend"] == "triton"} == {"skipped"}
    assert main(["verify", "--quick", "--part", "grid", "--device", "cpu"]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:2] == ["failed", "gradient,"]
    assert [line[:4] for line in lines if line[:1] == ["gradient"]] == [["gradient", "torch", "6", "2"]]
    monkeypatch.setattr(verification.operators, "OPERATORS", {"gradient": entry})
    assert main(["verify", "--quick", "--part", "grid", "--device", "cpu"]) == 0
    assert "0 failed" in capsys.readouterr().out


def test_physarum_is_compared_and_a_wrong_stage_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pinnfuse.simulation.physarum import stages

    command = ["verify", "--quick", "--json", "--device", "cpu", "--part", "physarum"]
    assert main(command) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["status"] for row in rows if row["backend"] == "torch"} == {"ok"}
    assert {row["operator"] for row in rows} == {"physarum", "physarum, sum"}
    true = stages.diffuse_and_decay

    def leaky(colony) -> None:
        true(colony)
        colony.fields[1 - colony.now].mul_(1 - 2e-2)

    monkeypatch.setattr(stages, "diffuse_and_decay", leaky)
    assert main(command) == 1
    failed = {row["operator"] for row in json.loads(capsys.readouterr().out) if row["status"] == "failed"}
    assert failed == {"physarum, sum"}  # the same stage on both sides
