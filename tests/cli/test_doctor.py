"""`pinnfuse doctor`: the keys that programs read, on this machine and on faked cards."""

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

import pinnfuse
from pinnfuse.cli import doctor
from pinnfuse.cli.main import main

GOLDEN = {
    "backends": ["cpu"],
    "backends.cpu": ["auto", "autograd", "torch", "triton"],
    "backends.cpu.torch": ["available", "why"],
    "caches": ["compiled code (torch)", "compiled kernels (Triton)", "references and kernel sources"],
    "cuda": ["available", "cards", "driver", "torch_built_for"],
    "pinnfuse": ["others", "path", "version"],
    "platform": ["processor", "python", "system"],
    "versions": ["lightning", "numpy", "sympy", "torch", "triton"],
}
CARD = ["capability", "memory_mb", "multiprocessors", "name", "supported"]


def keys(report: dict, path: str) -> list[str]:
    for part in path.split("."):
        report = report[part]
    return sorted(report)


@pytest.fixture
def no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor, "driver", lambda: None)


@pytest.fixture
def fake_card(monkeypatch: pytest.MonkeyPatch):
    def install(capability: tuple[int, int]) -> None:
        properties = SimpleNamespace(name="Test GPU", total_memory=80 * 10**9, multi_processor_count=100)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (50 * 10**9, 80 * 10**9))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 10 * 10**9)
        monkeypatch.setattr(doctor, "driver", lambda: "570.86.15")

    return install


def test_golden_keys(no_card: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert sorted(report) == ["backends", "caches", "cuda", "pinnfuse", "platform", "problems", "versions"]
    assert {path: keys(report, path) for path in GOLDEN} == GOLDEN
    assert report["versions"]["torch"] == torch.__version__
    assert Path(report["pinnfuse"]["path"]) == Path(pinnfuse.__file__).resolve().parent


def test_a_card_that_is_too_old_is_refused(fake_card, capsys: pytest.CaptureFixture[str]) -> None:
    fake_card((6, 1))
    report = doctor.collect()
    (card,) = report["cuda"]["cards"]
    assert sorted(card) == CARD
    assert (card["capability"], card["supported"]) == ("6.1", False)
    assert list(report["backends"]) == ["cpu"]  # nothing is promised for that card
    assert any("capability 6.1" in text and "--device cpu" in text for text in report["problems"])
    assert main(["doctor"]) == 1
    assert "capability 6.1" in capsys.readouterr().out


def test_a_card_that_runs_everything(fake_card) -> None:
    pytest.importorskip("triton")
    fake_card((9, 0))
    report = doctor.collect()
    (card,) = report["cuda"]["cards"]
    memory = card["memory_mb"]
    assert memory == {"total": 80_000, "free": 50_000, "reserved_here": 10_000, "used_elsewhere": 20_000}
    answers = report["backends"]["cuda:0"]
    assert {name: answer["available"] for name, answer in answers.items()} == dict.fromkeys(answers, True)
    assert "'triton'" in answers["auto"]["why"]
    assert not report["problems"]


def test_a_card_between_the_two_runs_torch(fake_card) -> None:
    pytest.importorskip("triton")
    fake_card((7, 5))
    answers = doctor.collect()["backends"]["cuda:0"]
    assert answers["torch"]["available"] and not answers["triton"]["available"]
    assert "capability" in answers["triton"]["why"]
    assert "'torch'" in answers["auto"]["why"]


def test_a_shadowed_install_is_named(no_card: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "pinnfuse"
    other.mkdir()
    (other / "__init__.py").touch()
    assert str(other) not in doctor.other_installs()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert str(other.resolve()) in doctor.other_installs()
    report = doctor.collect()
    assert any(str(other.resolve()) in text for text in report["problems"])
    text = io.StringIO()
    doctor.show(report, Console(file=text, width=200))
    assert "pip uninstall pinnfuse" in text.getvalue()


def test_works_without_triton_and_without_lightning(root: Path) -> None:
    code = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("triton", "lightning", "pytorch_lightning", "wandb", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "triton" else find(name, *a)
from pinnfuse.cli.main import main
sys.exit(main(["doctor"]))
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert "Triton is not installed" in " ".join(result.stdout.split()), result.stdout + result.stderr
    assert "Traceback" not in result.stderr
