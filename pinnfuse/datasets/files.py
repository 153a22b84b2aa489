"""Samples from a user's own files: a folder of shards, `.pt`, HDF5, PDEBench's layouts. Checked before training.

Own layout, in a `.pt` dictionary or as data sets of an HDF5 file: the task's arrays by name, samples first, e.g. `k`
and `u` `[N, nx, ny]` (darcy), `fields` `[N, levels, C, *space]` (the others).

PDEBench: Darcy `nu` `[N, nx, ny]`, `tensor` `[N, 1, nx, ny]` (cell-centred points); Burgers `tensor` `[N, levels, nx]`;
with `x-coordinate`, `y-coordinate`, `t-coordinate` where they are there. Its Burgers equation has nu / pi for nu.
"""

from __future__ import annotations

import importlib
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pinnfuse.datasets.samples import Samples
from pinnfuse.datasets.shards import digest
from pinnfuse.tasks import MapTask, Task, WindowTask
from pinnfuse.tasks.task import Arrays

CALLER = "--data"


def load(path: str | Path, task: Task) -> Samples:
    """The samples of a file or a folder, as float32.

    Raises:
        ValueError: nothing is there, it is damaged or foreign, shapes, coordinates or options are not those of the
            task, or numbers are not finite. The message says expected, got and remedy.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(
            f"{CALLER}: there is nothing at {path}. Give a folder of shards, a .pt or an .h5/.hdf5 file, or leave it "
            "out: then the data is computed and kept in the cache."
        )
    if path.is_dir():
        parts = _folder(path, task)
    elif path.suffix == ".pt":
        parts = [_arrays(_torch_file(path), path, task)]
    elif path.suffix in (".h5", ".hdf5"):
        parts = [_arrays(_hdf5_file(path), path, task)]
    else:
        raise ValueError(f"{CALLER}: {path} must end in .pt, .h5 or .hdf5, or be a folder. Convert or rename it.")
    for part in parts:
        _check(part, path, task)
    return Samples(parts)


def split(samples: Samples, task: Task, train: int, held_out: int) -> tuple[Samples, Samples]:
    """(training, held-out): the last `held_out` samples, and at most `train` of the others, the first ones."""
    if len(samples) < held_out + 1:
        raise ValueError(
            f"{CALLER}: needs at least {held_out + 1} samples, {held_out} of them held out; got {len(samples)}. Give "
            "more, or lower --training.held_out."
        )
    rest = len(samples) - held_out
    return samples.narrowed(0, min(train, rest)), samples.narrowed(rest, held_out)


def _folder(path: Path, task: Task) -> list[Arrays]:
    note = path / "task.json"
    shards = sorted(path.glob("train-*.pt"))
    if not note.is_file() or not shards:
        raise ValueError(
            f"{CALLER}: {path} must hold task.json and train-*.pt, as the cache of train.py does; it lacks "
            f"{'task.json' if not note.is_file() else 'shards'}. Give that folder, or one file."
        )
    try:
        made = json.loads(note.read_text())
        name, options = str(made["task"]), dict(made["options"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{CALLER}: {note} is damaged ({error}). Compute the data anew.") from error
    if name != task.name:
        raise ValueError(f"{CALLER}: {path} holds samples of {name!r}; expected {task.name!r}. Use --pde {name}.")
    other = {key: (value, options.get(key)) for key, value in task.options.items() if options.get(key) != value}
    if other:
        texts = ", ".join(f"{key} = {theirs!r} (expected {mine!r})" for key, (mine, theirs) in other.items())
        remedy = " ".join(f"--options.{key} {theirs}" for key, (_, theirs) in other.items())
        raise ValueError(f"{CALLER}: {path} was computed with {texts}. Add {remedy}.")
    parts = []
    for shard in [*shards, *sorted(path.glob("held_out-*.pt"))]:
        try:
            good = json.loads(shard.with_suffix(".json").read_text())["sha256"] == digest(shard)
        except (OSError, ValueError, KeyError, TypeError):
            good = False
        if not good:
            raise ValueError(
                f"{CALLER}: {shard} is damaged: its SHA-256 is not the one in {shard.with_suffix('.json').name}. "
                "Copy it anew, or delete it and its .json and let train.py compute it."
            )
        parts.append(_arrays(_torch_file(shard), shard, task))
    return parts


def _torch_file(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:  # torch.load does not look at its checksums
            wrong = archive.testzip()
        if wrong is not None:
            raise ValueError(f"checksum of {wrong}")
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if isinstance(error, pickle.UnpicklingError):  # torch's text advises to run what the file says
            reason = "it holds other objects"
        raise ValueError(
            f"{CALLER}: {path} is damaged, or no file of torch.save with tensors alone ({reason}). Write it anew with "
            "torch.save({name: tensor}, path)."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(
            f"{CALLER}: {path} must hold a dictionary of tensors; got {type(content).__name__}. Write it anew with "
            "torch.save({name: tensor}, path)."
        )
    return content


def _hdf5_file(path: Path) -> dict[str, Any]:
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise ValueError(
            f"{CALLER}: {path} needs h5py, which is not installed. pip install h5py, or convert it to .pt."
        ) from error
    try:
        with h5py.File(path, "r") as file:
            items = {name: item for name, item in file.items() if isinstance(item, h5py.Dataset)}
            return {name: torch.as_tensor(item[()]) for name, item in items.items() if item.dtype.kind in "fiu"}
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{CALLER}: {path} is damaged, or no HDF5 file ({reason}). Download it again.") from error


def _arrays(content: dict[str, Any], path: Path, task: Task) -> Arrays:
    """The task's arrays, from its own names or from PDEBench's."""
    names = sorted(str(name) for name, value in content.items() if isinstance(value, Tensor))[:8]
    content = {name: value.detach() for name, value in content.items() if _plain(value)}
    if all(name in content for name in task.arrays):
        found = {name: content[name] for name in task.arrays}
    elif "tensor" in content and isinstance(task, MapTask) and "nu" in content:
        found = {task.given: content["nu"], task.fields[0]: _squeezed(content["tensor"])}
        _coordinates(content, path, task)
    elif "tensor" in content and _like_burgers(task) and content["tensor"].dim() == 3:
        found = {"fields": content["tensor"].unsqueeze(2)}
        _coordinates(content, path, task)
    else:
        raise ValueError(
            f"{CALLER}: {path} must hold {' and '.join(map(repr, task.arrays))}, or PDEBench's names for "
            f"{task.name!r}, as arrays of real numbers in plain tensors; got {names}. Rename or convert what is in it."
        )
    return {name: value if value.dtype == torch.float32 else value.float() for name, value in found.items()}


def _plain(value: Any) -> bool:
    """Real numbers in memory, with at least one axis."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        return False
    return value.dim() > 0 and not (value.is_quantized or value.is_complex() or value.dtype == torch.bool)


def _like_burgers(task: Task) -> bool:
    return isinstance(task, WindowTask) and len(task.fields) == len(task.shape) == 1


def _squeezed(tensor: Tensor) -> Tensor:
    return tensor.squeeze(1) if tensor.dim() == 4 and tensor.shape[1] == 1 else tensor


def _coordinates(content: dict[str, Any], path: Path, task: Task) -> None:
    """The file's points and times are those of the task, a shift of a whole periodic axis aside."""
    for axis, n in zip(task.grid.axes, task.shape, strict=True):
        x = content.get(f"{axis}-coordinate")
        if x is None:
            continue
        h = task.grid.spacing[task.grid.index(axis)]
        mine = task.grid.coordinates(task.shape, dtype=torch.float64)[axis]
        steps = x.double().diff()
        tolerance = 1e-3 * h
        same = x.shape == (n,) and float((steps - h).abs().max()) < tolerance
        if not same or not (task.grid.periodic[axis] or abs(float(x[0] - mine[0])) < tolerance):
            first = float(x.flatten()[0]) if x.numel() else float("nan")
            raise ValueError(
                f"{CALLER}: {path} has {' x '.join(map(str, x.shape))} points along {axis} from {first:.6g} with "
                f"spacing {float(steps.mean()):.6g}; expected {n} from {float(mine[0]):.6g} with {h:.6g}. "
                "Set --options.points (and --options.centring cell for PDEBench's Darcy), or interpolate the file."
            )
    t = content.get("t-coordinate")
    if t is not None and isinstance(task, WindowTask) and t.numel() > 1:
        step = float(t.flatten()[1] - t.flatten()[0])
        if not abs(step - task.step) <= 1e-3 * task.step:
            raise ValueError(
                f"{CALLER}: {path} has levels {step:.6g} apart; expected {task.step:g}. "
                + (f"Add --options.step {step:.6g}." if step > 0 else "Mend its t-coordinate.")
            )


def _check(part: Arrays, path: Path, task: Task) -> None:
    counts = {name: len(tensor) for name, tensor in part.items()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"{CALLER}: the arrays in {path} must have one number of samples; got {counts}.")
    for name, shape in task.arrays.items():
        tensor, got = part[name], tuple(part[name].shape[1:])
        fits = got == shape
        if isinstance(task, WindowTask):  # any number of levels that holds a window
            fits = len(got) == len(shape) and got[1:] == shape[1:] and task.starts({name: tensor.shape}) >= 1
        if not fits:
            first = f">= {task.history + task.ahead}" if isinstance(task, WindowTask) else str(shape[0])
            expected = ", ".join(("N", first, *map(str, shape[1:])))
            raise ValueError(
                f"{CALLER}: {name!r} in {path} must be [{expected}]; got {list(tensor.shape)}. Set --options.points to "
                "the file's, or interpolate it."
            )
        bad = ~torch.isfinite(tensor)
        if bool(bad.any()):
            sample = int(bad.flatten(1).any(1).nonzero()[0])
            raise ValueError(
                f"{CALLER}: {name!r} in {path} must be finite; sample {sample} holds NaN or Inf. Leave it out, or "
                "compute it anew."
            )
    if isinstance(task, MapTask) and not bool((part[task.given] > 0).all()):
        raise ValueError(
            f"{CALLER}: {task.given!r} in {path} must be > 0; its least is {float(part[task.given].min()):g}."
        )
