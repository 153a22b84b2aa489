"""What this machine offers pinnfuse: versions, cards, memory, and which backend will run where and why."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import pinnfuse
from pinnfuse import PDE, BackendUnavailable, backends
from pinnfuse.bench.machine import processor
from pinnfuse.jets.plan import plan
from pinnfuse.reference.cache import directory

LOWEST_CAPABILITY = (7, 0)
"""Older cards have no tensor cores, and neither Triton nor current PyTorch builds hold code for them."""


def collect() -> dict[str, Any]:
    """The report, made of what JSON knows; `problems` is empty on a machine that is in order."""
    cards = [_card(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    report: dict[str, Any] = {
        "platform": {"python": platform.python_version(), "system": platform.platform(), "processor": processor()},
        "versions": {name: _version(name) for name in ("torch", "triton", "lightning", "numpy", "sympy")},
        "pinnfuse": {"version": pinnfuse.__version__, "path": str(_root()), "others": other_installs()},
        "cuda": {
            "available": torch.cuda.is_available(),
            "torch_built_for": torch.version.cuda,
            "driver": driver() if cards else None,
            "cards": cards,
        },
        "backends": {
            name: _backends(torch.device(name))
            for name in ("cpu", *(f"cuda:{i}" for i, card in enumerate(cards) if card["supported"]))
        },
        "caches": {
            "references and kernel sources": str(directory()),
            "compiled kernels (Triton)": os.environ.get("TRITON_CACHE_DIR") or str(Path.home() / ".triton" / "cache"),
            "compiled code (torch)": os.environ.get("TORCHINDUCTOR_CACHE_DIR")
            or str(Path(tempfile.gettempdir()) / f"torchinductor_{_user()}"),
        },
    }
    report["problems"] = _problems(report)
    return report


def _problems(report: dict[str, Any]) -> list[str]:
    found = [
        f"another pinnfuse lies at {path}; Python imports the one at {report['pinnfuse']['path']}. "
        "Uninstall one of them with `pip uninstall pinnfuse`."
        for path in report["pinnfuse"]["others"]
    ]
    lowest = ".".join(map(str, LOWEST_CAPABILITY))
    for i, card in enumerate(report["cuda"]["cards"]):
        if not card["supported"]:
            found.append(
                f"cuda:{i}, {card['name']}, has compute capability {card['capability']}; pinnfuse needs {lowest} or "
                "newer (Volta, 2017). Use --device cpu, or another card."
            )
    if not report["cuda"]["available"] and driver():
        built = report["cuda"]["torch_built_for"]
        found.append(
            f"there is an NVIDIA driver ({driver()}) but torch finds no card: "
            + ("this torch is a build for CPUs; install one with CUDA." if built is None else "see `nvidia-smi`.")
        )
    return found


def _card(index: int) -> dict[str, Any]:
    """Memory in MB (10^6 bytes): `free` is what the driver can still give out, `reserved` what this process holds."""
    properties = torch.cuda.get_device_properties(index)
    capability = tuple(torch.cuda.get_device_capability(index))
    card: dict[str, Any] = {
        "name": properties.name,
        "capability": ".".join(map(str, capability)),
        "supported": capability >= LOWEST_CAPABILITY,
        "multiprocessors": properties.multi_processor_count,
        "memory_mb": {"total": round(properties.total_memory / 1e6)},
    }
    if card["supported"]:
        free, total = torch.cuda.mem_get_info(index)
        reserved = torch.cuda.memory_reserved(index)
        card["memory_mb"] |= {
            "free": round(free / 1e6),
            "reserved_here": round(reserved / 1e6),
            "used_elsewhere": round((total - free - reserved) / 1e6),
        }
    return card


def _backends(device: torch.device) -> dict[str, dict[str, Any]]:
    """What the library itself answers for a plain dense network on that device."""
    pde = PDE("u", "t x", equations={"burgers": "u_t + u*u_x - 0.01*u_xx"})
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    with FakeTensorMode():  # a tensor on that device, without touching it
        points = torch.empty(8, 2, device=device)
    jets = plan(pde)
    found: dict[str, dict[str, Any]] = {}
    for name in ("autograd", "torch", "triton"):
        try:
            choice = backends.choose(name, net, points, jets.space, jets)
            found[name] = {"available": True, "why": _WHY[name] if choice.backend == name else choice.reason}
        except BackendUnavailable as reason:
            why = re.sub(r"^backend 'triton' was asked for but cannot run: | ?Available here: .*$", "", str(reason))
            found[name] = {"available": False, "why": why.rstrip(".")}
    chosen = next(name for name in ("triton", "torch") if found[name]["available"])
    return found | {"auto": {"available": True, "why": f"takes {chosen!r} for networks with a closed form"}}


_WHY = {
    "autograd": "nested torch.autograd.grad, any network; the baseline",
    "torch": "closed form for recognised networks, forward mode for others",
    "triton": "fused kernels for recognised dense stacks",
}


def other_installs() -> list[str]:
    """Folders of pinnfuse that Python could import but does not, because another one comes first."""
    here, found = _root(), set()
    for entry in sys.path:
        spec = importlib.machinery.PathFinder.find_spec("pinnfuse", [entry or os.getcwd()])
        if spec is not None and spec.origin:
            found.add(Path(spec.origin).resolve().parent)
    for distribution in importlib.metadata.distributions(name="pinnfuse"):
        url = json.loads(distribution.read_text("direct_url.json") or "{}")
        if url.get("dir_info", {}).get("editable"):
            folder = Path(unquote(urlparse(url["url"]).path)) / "pinnfuse"
            if (folder / "__init__.py").is_file():
                found.add(folder.resolve())
    return sorted(str(path) for path in found - {here})


def driver() -> str | None:
    """Version of the NVIDIA driver, None without one."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        try:
            command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            text = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
        except (OSError, subprocess.TimeoutExpired):
            return None
    match = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text)
    return match[0] if match else None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _root() -> Path:
    return Path(pinnfuse.__file__).resolve().parent


def _user() -> str:
    import getpass

    try:
        return re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    except (OSError, KeyError):  # a container whose user has no name
        return str(os.getuid())


def show(report: dict[str, Any], console: Console) -> None:
    """The report as tables."""
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_row("pinnfuse", f"{report['pinnfuse']['version']}  {escape(report['pinnfuse']['path'])}")
    facts.add_row("python", report["platform"]["python"])
    for name, version in report["versions"].items():
        facts.add_row(name, version or "[dim]not installed[/]")
    facts.add_row("processor", escape(report["platform"]["processor"]))
    cuda = report["cuda"]
    if not cuda["cards"]:
        facts.add_row("card", "none" if cuda["torch_built_for"] else "none (this torch is a build for CPUs)")
    for i, card in enumerate(cuda["cards"]):
        memory = ", ".join(f"{name.replace('_', ' ')} {value:,} MB" for name, value in card["memory_mb"].items())
        facts.add_row(f"cuda:{i}", f"{escape(card['name'])}, capability {card['capability']}")
        facts.add_row("", memory)
    if cuda["cards"]:
        facts.add_row("driver", f"{cuda['driver']}, torch built for CUDA {cuda['torch_built_for']}")
    for name, path in report["caches"].items():
        facts.add_row(name, escape(path))
    console.print(facts)
    table = Table("device", "backend", "runs", "why", title="what will run where", title_justify="left")
    for device, found in report["backends"].items():
        for name, answer in found.items():
            mark = "[green]yes[/]" if answer["available"] else "[yellow]no[/]"
            table.add_row(device, name, mark, escape(answer["why"]))
            device = ""
    console.print(table)
    for problem in report["problems"]:
        console.print("[bold red]problem:[/]", escape(problem), highlight=False, soft_wrap=True)
    if not report["problems"]:
        console.print("[green]nothing is wrong.[/] Next: pinnfuse verify --quick", highlight=False)
