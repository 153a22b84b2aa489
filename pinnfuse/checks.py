"""Checks of what a caller hands to a loss, before any work. Every message: expected, got, remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

DTYPES = (torch.float32, torch.float64)


def unwrap(net: nn.Module, caller: str) -> nn.Module:
    """The module behind `torch.compile`; a DistributedDataParallel wrapper is refused."""
    if isinstance(net, nn.parallel.DistributedDataParallel | nn.DataParallel):
        raise ValueError(
            f"{caller}: `net` is wrapped in {type(net).__name__}, whose gradient synchronisation a fused pass would "
            "bypass. Put the loss call inside the wrapped module's forward (Lightning does), or pass net.module and "
            "reduce the gradients."
        )
    if not isinstance(net, nn.Module):
        raise ValueError(
            f"{caller}: `net` must be a torch.nn.Module; got {type(net).__name__}. Wrap a function as the forward of "
            "one; arguments are (net, points)."
        )
    net = getattr(net, "_orig_mod", net)
    if not isinstance(net, torch.jit.ScriptModule):
        for module in modules_of(net):
            for name, p in module._parameters.items():
                if type(p) is not nn.Parameter and isinstance(p, nn.UninitializedParameter):
                    raise ValueError(
                        f"{caller}: `net` must have its parameters; {type(module).__name__}.{name} has no shape yet. "
                        "Call net(points) once before the loss."
                    )
    return net


def modules_of(net: nn.Module) -> list[nn.Module]:
    """`net` and every module below it, each once; `net.modules()` takes several times as long."""
    found, seen = [net], {id(net)}
    for module in found:  # grows
        own = module.__dict__.get("_modules")  # a ScriptModule has none there
        for child in module.children() if own is None else own.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                found.append(child)
    return found


def check_network(net: nn.Module, points: Tensor, caller: str) -> None:
    """Parameters must share dtype and device with the points."""
    dtype, device = points.dtype, points.device
    for module in modules_of(net):
        own = module.__dict__.get("_parameters")  # a ScriptModule has none there
        for p in module.parameters(recurse=False) if own is None else own.values():
            if p is not None and (p.dtype != dtype or p.device != device):
                check_tensors({f"the network's {n}": p for n, p in net.named_parameters()}, points, caller)


def check_points(points: Tensor, coordinates: Sequence[str], caller: str) -> None:
    if not isinstance(points, Tensor):
        raise ValueError(
            f"{caller}: `points` must be a tensor; got {type(points).__name__}. Use torch.as_tensor(points)."
        )
    expected = f"[N, {len(coordinates)}] with columns {', '.join(coordinates[:12])}"
    if points.dim() != 2 or points.shape[1] != len(coordinates):
        remedy = (
            "Stack the coordinates with torch.stack((...), dim=1)." if points.dim() == 1 else "Reorder or drop columns."
        )
        raise ValueError(f"{caller}: `points` must be {expected}; got {_shape(points)}. {remedy}")
    if points.shape[0] == 0:
        raise ValueError(
            f"{caller}: `points` must have at least one row, {expected}; got {_shape(points)}. Check the sampler."
        )
    if points.dtype not in DTYPES:
        raise ValueError(f"{caller}: `points` must be float32 or float64; got {points.dtype}. Use points.float().")
    if points.layout is not torch.strided:
        raise ValueError(f"{caller}: `points` must be a dense tensor; got {points.layout}. Use points.to_dense().")


def check_tensors(tensors: Mapping[str, Tensor], points: Tensor, caller: str) -> None:
    """Weights, parameters and data must share dtype and device with the points."""
    for name, tensor in tensors.items():
        if tensor.dtype != points.dtype:
            which = "one of them, e.g. points.to(dtype)" if tensor.dtype in DTYPES else "the latter"
            raise ValueError(
                f"{caller}: `points` and {name} must have one dtype; got {points.dtype} and {tensor.dtype}. Convert "
                f"{which}."
            )
        if tensor.device != points.device:
            raise ValueError(
                f"{caller}: `points` and {name} must be on one device; got {points.device} and {tensor.device}. Move "
                "one of them, e.g. points.to(device) or loss_fn.to(device)."
            )


def check_width(width: int, fields: Sequence[str], caller: str) -> None:
    if width != len(fields):
        raise ValueError(
            f"{caller}: `net` must return [N, {len(fields)}], one column per field ({', '.join(fields)}); got {width} "
            "columns. Change the last layer, or the PDE's fields."
        )


def check_value(value: Tensor, count: int, fields: Sequence[str], caller: str) -> None:
    """What a network returned for `count` points."""
    if not isinstance(value, Tensor) or value.dim() != 2 or value.shape[0] != count:
        got = _shape(value) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"{caller}: `net` must return [N, {len(fields)}] for N = {count} points; got {got}. Keep one row per point."
        )
    check_width(value.shape[1], fields, caller)


def check_point_weights(weights: Tensor | None, count: int, equations: int, values: bool, caller: str) -> Tensor | None:
    """`weights` as [N, E]. Signs are looked at where that needs no synchronisation, or when `values` asks for it."""
    if weights is None:
        return None
    _need_tensor("point_weights", weights, caller)
    if tuple(weights.shape) not in {(count,), (count, 1), (count, equations)}:
        raise ValueError(
            f"{caller}: `point_weights` must be [N] = [{count}] or [N, equations] = [{count}, {equations}]; got "
            f"{_shape(weights)}."
        )
    if (values or weights.device.type == "cpu") and bool((weights < 0).any()):
        raise ValueError(
            f"{caller}: `point_weights` must be >= 0; got {float(weights.min()):.3g}. Clamp them with "
            "weights.clamp(min=0)."
        )
    return (weights if weights.dim() == 2 else weights.unsqueeze(1)).expand(count, equations)


def check_data(data: Mapping[str, Tensor] | None, names: Sequence[str], count: int, caller: str) -> dict[str, Tensor]:
    if data is not None and not isinstance(data, Mapping):
        raise ValueError(
            f"{caller}: `data` must be a mapping from column name to tensor [N]; got {type(data).__name__}. "
            "Pass data={name: tensor}."
        )
    given = dict(data or {})
    missing = [name for name in names if name not in given]
    surplus = [name for name in given if name not in names]
    if missing or surplus:
        raise ValueError(
            f"{caller}: `data` must hold the columns {list(names)}; "
            + (f"missing {missing}" if missing else f"unknown {surplus}")
            + ". Pass data={name: tensor of shape [N]}."
        )
    for name, column in given.items():
        _need_tensor(f"data[{name!r}]", column, caller)
        if tuple(column.shape) not in {(count,), (count, 1)}:
            raise ValueError(f"{caller}: `data[{name!r}]` must be [N] = [{count}]; got {_shape(column)}.")
    return {name: given[name].reshape(count) for name in names}


def _need_tensor(name: str, value: object, caller: str) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(
            f"{caller}: `{name}` must be a tensor; got {type(value).__name__}. Use torch.as_tensor(values).to(points)."
        )


def check_finite(name: str, rows: Tensor, caller: str) -> None:
    """A tensor [N, ...] must hold neither NaN nor Inf; synchronises a GPU."""
    bad = ~torch.isfinite(rows)
    if bool(bad.any()):
        row = int(bad.any(dim=1).nonzero()[0])
        raise ValueError(
            f"{caller}: `{name}` must be finite; {int(bad.any(dim=1).sum())} of {rows.shape[0]} rows hold NaN or "
            f"Inf, the first is row {row}: {rows[row].tolist()}. Drop them with "
            f"{name}[torch.isfinite({name}).all(dim=1)]."
        )


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))
