"""Tiles of the grid residual's kernels on a card: time of loss and gradient per tile, for both ways to the residuals.

    python benchmarks/grid_residual_tiles.py OUT.json

Every variant is compiled in a process of its own first (Triton keeps the result on disk), since one after the other
takes minutes. Prints the best tile per way, over periodic and walls.
"""

import json
import multiprocessing
import sys
import time

KEPT = [(64, 8, 8), (64, 4, 4), (128, 4, 4), (128, 4, 8), (32, 8, 4), (128, 2, 4)]
AGAIN = [(64, 4, 4), (64, 4, 8)]
VARIANTS = [(b, t, True) for b in ("periodic", "walls") for t in KEPT]
VARIANTS += [(b, t, False) for b in ("periodic", "walls") for t in AGAIN]


def kernels(boundary, tile, store, n, batch):
    """Functions that launch the loss and the gradient."""
    import torch

    from pinnfuse.bench.grid_engines import GridCase, fused
    from pinnfuse.grid import fused as kernels_of
    from pinnfuse.kernels.grid import residual
    from pinnfuse.kernels.grid.residual import RECOMPUTED, SAVED
    from pinnfuse.kernels.grid.tile import Tile

    case = GridCase(boundary, n, batch)
    loss = fused(case, "triton", torch.device("cuda"))
    (fields,) = case.inputs(torch.device("cuda"), 1)
    given = loss._checked(fields, None, None, None, "")
    parameters = kernels_of._parameters(given)
    a = kernels_of._arguments(loss.scheme, given.shape, fields, given.equation_weights, None, parameters, 1)
    source, tile = kernels_of.source(loss.scheme), Tile(*tile)
    one = torch.ones((), device="cuda")
    _, _, r = residual.loss(source, a, store, tile)
    mode = SAVED if store else RECOMPUTED
    return [lambda: residual.loss(source, a, store, tile), lambda: residual.gradient(source, a, mode, one, r, tile)]


def warm(variant):
    start = time.perf_counter()
    for launch in kernels(*variant, 256, 1):
        launch()
    return variant, time.perf_counter() - start


def compiled(boundary):
    """TorchInductor's cache, for the benchmark that follows."""
    import torch

    from pinnfuse.bench import grid_engines as bench

    case = bench.GridCase(boundary, 2048, 8)
    bench.step_of(bench.compiled(case))(case.inputs(torch.device("cuda"), 1)[0])


def milliseconds(launch):
    import torch

    launch()
    found = []
    for _ in range(12):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        launch()
        end.record()
        found.append((start, end))
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(end) for start, end in found)[5]


def main(out):
    import torch

    with multiprocessing.get_context("spawn").Pool(12) as pool:
        others = pool.map_async(compiled, ("periodic", "walls"), chunksize=1)
        waits = dict(pool.imap_unordered(warm, VARIANTS[::-1]))
        others.wait()
    rows = []
    for variant in VARIANTS:
        boundary, tile, store = variant
        times = [milliseconds(launch) for launch in kernels(*variant, 2048, 8)]
        rows.append({"boundary": boundary, "tile": tile, "store": store, "loss_ms": times[0], "gradient_ms": times[1],
                     "compile_s": waits[variant]})  # fmt: skip
        print(f"{boundary:9} {tile!s:14} store={store!s:5} loss {times[0]:.3f} gradient {times[1]:.3f} ms", flush=True)
        torch.cuda.empty_cache()
    total = {}
    for row in rows:
        key = row["store"], tuple(row["tile"])
        total[key] = total.get(key, 0) + row["loss_ms"] + row["gradient_ms"]
    best = {str(store): min((t, k[1]) for k, t in total.items() if k[0] == store) for store in (True, False)}
    print("best", best)
    with open(out, "w") as file:
        json.dump({"card": torch.cuda.get_device_name(), "rows": rows, "best": best}, file, indent=1)
    return best


if __name__ == "__main__":
    main(sys.argv[1])
