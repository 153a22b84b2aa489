"""`pinnfuse verify` finds a seeded fault, says what a compiler said, and covers every problem."""

import json
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from pinnfuse import backends, models, problems, verification
from pinnfuse.cli.main import main
from pinnfuse.grid import registry
from pinnfuse.jets import unary
from pinnfuse.verification import Row
from pinnfuse.verification import cases as all_cases
from pinnfuse.verification import runner as verify

COMMAND = ["verify", "--quick", "--device", "cpu", "--jobs", "1"]


def only(monkeypatch: pytest.MonkeyPatch, *wanted: str) -> None:
    chosen = {name: all_cases.cases()[name] for name in wanted}
    monkeypatch.setattr(verify, "cases", lambda: chosen)
    monkeypatch.setattr(verification.operators, "OPERATORS", {})


def test_every_problem_activation_and_network_is_there() -> None:
    found = [make(3) for make in all_cases.cases().values()]
    assert {name for names in problems.available().values() for name in names} <= {case[0] for case in found}
    networks = {case[1] for case in found if case[0] == "all features"}
    assert set(models.ACTIVATIONS) < networks
    assert any(p.trainable for case in found for p in case[2].parameters.values())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_full_run_holds_every_comparison_once_and_the_quick_one_each_mechanism(device: str) -> None:
    def networks(quick: bool) -> set[tuple[str, str, str]]:
        tasks = verification.network_tasks(torch.device(device), quick)
        found = [(task.name, path, dtype) for task in tasks for path in task.paths for dtype in task.dtypes]
        assert len(found) == len(set(found))
        return set(found)

    def operators(quick: bool) -> set[tuple[str, str, str, str]]:
        tasks = verification.operator_tasks(torch.device(device), quick)
        found = [(task.operator, task.grid, task.backend, dtype) for task in tasks for dtype in task.dtypes]
        assert len(found) == len(set(found))
        return set(found)

    dtypes = ("float32", "float64")
    paths = ("closed form", "forward mode", "triton")
    names = all_cases.cases()
    assert networks(False) == {(name, path, dtype) for name in names for path in paths for dtype in dtypes}
    assert {case[:2] for case in operators(False)} == set(verification.operators.cases())
    assert len(operators(False)) == 8 * len(verification.operators.cases())
    assert networks(True) < networks(False) and operators(True) < operators(False)
    quick = {name for name, path, dtype in networks(True) if (path, dtype) == ("triton", "float32")}
    dropped = {f"all features, {name}" for name in models.ACTIVATIONS if name != "tanh"}
    assert quick == set(names) - dropped
    schemes = {name.split()[1] for name, *_ in operators(False) if name.startswith("convection")}
    assert schemes == {name.split()[1] for name, *_ in operators(True) if name.startswith("convection")}
    assert {"float16", "bfloat16"} <= {dtype for _, _, backend, dtype in operators(True) if backend == "triton"}


def test_a_sound_library_passes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    only(monkeypatch, "all features, tanh", "burgers")
    assert main(COMMAND) == 0
    text = capsys.readouterr().out
    assert "0 failed" in text and "problems" in text and "--full" in text
    assert main([*COMMAND, "--full"]) == 0
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
    only(monkeypatch, "all features, tanh", "all features, sines (SIREN)")
    assert main([*COMMAND, "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    failed = {(row["network"], row["path"], row["dtype"]) for row in rows if row["status"] == "failed"}
    assert failed == {("tanh", "closed form", "float32"), ("tanh", "closed form", "float64")}


def test_a_compiler_error_is_told_once_with_versions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    choose, tried = backends.choose, []

    def broken(backend: str, *args: object) -> backends.Choice:
        if backend == "triton":
            tried.append(backend)
            raise RuntimeError("PassManager::run failed")
        return choose(backend, *args)

    monkeypatch.setattr(backends, "choose", broken)
    only(monkeypatch, "all features, tanh", "all features, sines (SIREN)")
    assert main([*COMMAND, "--part", "networks"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("failed")]
    assert line.startswith("failed all features, tanh, triton, float32 and float64 and 1 more: RuntimeError")
    assert "PassManager::run failed" in line
    assert f"torch {torch.__version__}" in line and "triton " in line
    assert len(tried) == 2


@dataclass(frozen=True)
class Doing:
    """A task for workers: it gives its number, or dies of it."""

    number: int
    act: str = "answer"
    seconds: float = 1.0

    @property
    def label(self) -> str:
        return f"task {self.number}"

    def rows(self, device: torch.device) -> list[Row]:
        if self.act == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.act == "raise":
            raise RuntimeError(f"an illegal memory access was encountered by process {os.getpid()}.")
        if self.act == "hang":
            time.sleep(3600)
        if self.act == "half":  # an answer of 999 bytes, of which eight arrive
            for handle in range(3, 100):
                if Path(f"/proc/self/fd/{handle}").exists() and "socket" in os.readlink(f"/proc/self/fd/{handle}"):
                    os.write(handle, struct.pack("!i", 999) + b"half")
            os._exit(1)
        return [Row(self.label, "", "", "", "ok", "pid", float(os.getpid()), 1e9)]

    def lost(self, why: str) -> Row:
        return Row(self.label, "", "", "", "failed", note=why)


def test_a_worker_that_dies_is_one_failed_case_and_the_rest_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    acts = ["answer", "crash", "raise", "answer", *(["half"] if sys.platform == "linux" else [])]
    tasks = [Doing(k, act, seconds=9 - k) for k, act in enumerate(acts)]
    told: list[str] = []
    rows = verification.run_tasks(tasks, torch.device("cpu"), 2, told.append)
    assert [row.pde for row in rows] == [task.label for task in tasks]  # whatever the order in which they end
    assert [row.status for row in rows] == ["ok", "failed", "failed", "ok", "failed"][: len(acts)]
    assert "signal SIGSEGV" in rows[1].note
    assert rows[2].note.startswith("RuntimeError: an illegal memory access")
    assert os.getpid() not in {int(row.error) for row in rows if row.error is not None}
    assert f"process {int(rows[3].error)}." not in rows[2].note  # whoever raised is not asked again
    assert told[-1].startswith(f"{len(acts)} of {len(acts)}")
    assert not multiprocessing.active_children()


def test_a_comparison_that_never_ends_is_stopped() -> None:
    rows = verification.run_tasks([Doing(0, "hang")] * 2, torch.device("cpu"), 2, limit=3)
    assert [row.note for row in rows] == ["no answer after 3 s, stopped"] * 2


def test_ctrl_c_ends_all_workers() -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verification.run_tasks([Doing(k, "hang") for k in range(2)], torch.device("cpu"), 2, interrupt)
    assert not multiprocessing.active_children()


def test_workers_find_the_same_as_this_process() -> None:
    tasks = verification.physarum_tasks(quick=True)[:3]
    alone, together = (verification.run_tasks(tasks, torch.device("cpu"), jobs) for jobs in (1, 2))
    assert alone == together and {row.status for row in alone} == {"ok", "skipped"}


def test_workers_do_not_run_the_program_that_starts_them(tmp_path: Path) -> None:
    program = tmp_path / "unguarded.py"
    program.write_text(
        "import torch\nfrom pinnfuse import verification\n"
        "tasks = verification.physarum_tasks(True)[:2]\n"
        "print({row.status for row in verification.run_tasks(tasks, torch.device('cpu'), 2)})\n"
    )
    for argument, text in ((str(program), ""), ("-", program.read_text())):
        done = subprocess.run([sys.executable, argument], input=text, capture_output=True, text=True, check=False)
        assert "'ok'" in done.stdout and "failed" not in done.stdout, done.stderr


def test_a_wrong_number_of_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--jobs", "0"]) == 1
    assert "--jobs" in capsys.readouterr().err


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
    assert main([*COMMAND, "--json", "--part", "grid"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert {row["dtype"] for row in rows if row["status"] == "failed"} == {"float32"}
    assert {row["status"] for row in rows if row["backend"] == "triton"} == {"skipped"}
    assert main([*COMMAND, "--part", "grid"]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:2] == ["failed", "gradient,"]
    assert [line[:4] for line in lines if line[:1] == ["gradient"]] == [["gradient", "torch", "6", "2"]]
    monkeypatch.setattr(verification.operators, "OPERATORS", {"gradient": entry})
    assert main([*COMMAND, "--part", "grid"]) == 0
    assert "0 failed" in capsys.readouterr().out


def test_physarum_is_compared_and_a_wrong_stage_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pinnfuse.simulation.physarum import stages

    command = [*COMMAND, "--json", "--part", "physarum"]
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
