"""Physarum's kernels against its torch stages: the same bits; and on a card what a run costs."""

import json
import os
import subprocess
import sys

import pytest
import torch

from pinnfuse import BackendUnavailable
from pinnfuse.simulation import Physarum
from pinnfuse.simulation.physarum import STAGES

AGENTS = ("x", "y", "heading")


def maps(shape) -> dict:
    generator = torch.Generator().manual_seed(3)
    return {"food": torch.rand(shape, generator=generator), "obstacles": torch.rand(shape, generator=generator) < 0.1}


def pair(shape, agents, where, ours="triton", **options) -> tuple[Physarum, Physarum]:
    """The same colony for torch on the CPU and for the kernels, with something to sense."""
    species = options.get("species", 1)
    field = torch.rand((species, *shape), generator=torch.Generator().manual_seed(1))
    options = {"field": field, "seed": 2**40 + 5, "jitter": 5.0, "sensor_distance": 5.0} | options
    return tuple(
        Physarum(shape, agents, device=device, backend=backend, **options)
        for device, backend in (("cpu", "torch"), (where, ours))
    )


def assert_same(a: Physarum, b: Physarum, field_bound: float = 0.0) -> None:
    for name in AGENTS:
        assert torch.equal(getattr(a.colony, name), getattr(b.colony, name).cpu()), name
    difference = (a.field.double() - b.field.double().cpu()).abs().max()
    assert difference <= field_bound * float(a.field.double().max())
    assert torch.equal(a.colony.clock, b.colony.clock.cpu())


CASES = {
    "plain": ((20, 33), {}),
    "argmax, bilinear, random ties": ((17, 16), {"sensing": "bilinear", "steering": "argmax", "ties": "random"}),
    "three species, walls, two-stage": (
        (9, 40),
        {"species": 3, "boundary": "walls", "deposits": "two-stage", "attraction": torch.randn(3, 3)},
    ),
    "maps, half": ((16, 24), maps((16, 24)) | {"dtype": torch.float16, "boundary": "walls", "sensing": "bilinear"}),
    "small": ((5, 6), {"species": 2, "speed": [5.0, 0.3], "deposit": [0.3, 2.0], "decay": [0.0, 1.0]}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_has_the_same_bits(case, where) -> None:
    shape, options = CASES[case]
    reference, ours = pair(shape, 150, where, **options)
    for _ in range(2 if where.type == "cpu" else 50):
        reference.step()
        ours.step()
        assert_same(reference, ours)


def test_half_precision_saturates(where) -> None:
    """Infinities would become NaN in the next mean."""
    options = {"dtype": torch.float16, "deposit": 3e4, "field": None, "positions": torch.full((40, 2), 2.5)}
    reference, ours = pair((5, 8), 40, where, **options)
    for sim in (reference, ours):
        sim.step()
        sim.step()
    assert_same(reference, ours)
    assert float(ours.field.max()) == 65504.0 and bool(torch.isfinite(ours.field).all())


@pytest.mark.parametrize("stage", STAGES)
def test_any_stage_may_be_the_other_backend(stage, where) -> None:
    reference, ours = pair((12, 16), 60, where, ours=dict.fromkeys(STAGES, "torch") | {stage: "triton"})
    for _ in range(2):
        reference.step()
        ours.step()
    assert_same(reference, ours)


@pytest.mark.parametrize("deposits", ["count", "two-stage", "float"])
@pytest.mark.parametrize("crowd", ["one cell", "16 cells", "half in one cell", "everywhere"])
def test_deposits_of_a_crowd(deposits, crowd, where) -> None:
    n = 700
    places = torch.rand(n, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([32.0, 16.0])
    if crowd == "one cell":
        places = places * 0 + 3.5
    elif crowd == "16 cells":
        places = places % 4 + 2
    elif crowd == "half in one cell":
        places[::2] = 7.5
    backend = dict.fromkeys(STAGES, "torch") | {"deposit": "triton"}
    sim = Physarum((16, 32), n, positions=places, deposits=deposits, deposit=0.5, device=where, backend=backend)
    from pinnfuse.kernels import physarum

    physarum.deposit(sim.colony)
    cells = places[:, 1].long() * 32 + places[:, 0].long()
    exact = cells.bincount(minlength=512).double() * (0.5 if deposits == "float" else 1)
    assert torch.equal(sim.colony.trails[0].flatten().double().cpu(), exact)


@pytest.mark.parametrize("deposits", ["count", "two-stage"])
def test_empty_slots_do_nothing(deposits, where) -> None:
    """Every third place empty: the run of the others alone, from fused and from single stages."""
    field = torch.rand(12, 16, generator=torch.Generator().manual_seed(1))
    options = {"field": field, "sensor_distance": 5.0, "deposits": deposits, "seed": 4, "device": where}
    whole = Physarum((12, 16), 90, backend="triton", **options)
    x, y, h, number = (getattr(whole.colony, k).clone() for k in ("x", "y", "heading", "identity"))
    kept = (number % 3 != 0).nonzero()[:, 0]
    for backend in ("triton", dict.fromkeys(STAGES, "torch") | {"deposit": "triton"}, "torch"):
        sparse = Physarum((12, 16), 90, backend=backend, **options)
        few = Physarum((12, 16), len(kept), backend="torch", **options)
        sparse.colony.slots = True
        sparse.colony.identity.masked_fill_(number % 3 == 0, -1)
        for name, values in (("x", x), ("y", y), ("heading", h), ("identity", number)):
            getattr(few.colony, name).copy_(values[kept])
        sparse.step()
        few.step()
        assert torch.equal(sparse.field, few.field) and torch.equal(sparse.colony.x[kept], few.colony.x)


@pytest.mark.parametrize("torus", [True, False])
def test_what_a_band_sends_and_takes(torus, where) -> None:
    """The kernels put the same agents into the same messages, and free and fill as many slots, as torch does."""
    from pinnfuse.kernels import physarum
    from pinnfuse.simulation.physarum.split import bands, exchange

    band = bands.Band(rank=0, ranks=3, height=33, torus=torus, halo=4)
    found = []
    for device, kernels in (("cpu", exchange), (where, physarum)):
        c = Physarum(
            (band.rows, 20), 300, species=3, seed=5, sensor_distance=2.0, device=device, backend="torch"
        ).colony
        c.identity[::7] = -1
        c.identity[220:] = -1  # beyond the end
        counters = torch.tensor([0, 220] + 6 * [0], dtype=torch.int32, device=device)
        messages = [exchange.Message(c.fields[0], band.beyond(edge)) for edge in (0, 1)]
        for message in messages:
            message.make_room(200)
        free = torch.empty(300, dtype=torch.int32, device=device)
        kernels.pack(c, band, 2, counters, free, messages)
        sent = [sorted(m.records[: int(counters[2 + 3 * e])].tolist()) for e, m in enumerate(messages)]
        freed = sorted(free[: int(counters[0])].tolist())
        numbers = counters.tolist()
        message = messages[1]
        message.header[:1] = counters[5:6]
        kernels.unpack(c, message, counters[0:1] - 9, counters, free, 7)  # more records than free slots
        agents = torch.stack([c.x, c.y, c.heading, c.identity, c.kind], dim=1)[c.identity >= 0]
        found.append((sent, freed, numbers, sorted(agents.tolist())))
    assert found[0] == found[1]
    assert found[0][2][5] > 9 and bool(found[0][0][0]) == torus


def test_triton_needs_a_card_or_the_interpreter(monkeypatch) -> None:
    monkeypatch.delenv("PINNFUSE_INTERPRET")
    with pytest.raises(BackendUnavailable, match="needs a CUDA card"):
        Physarum((8, 8), 3, sensor_distance=2.0, backend="triton", device="cpu")
    assert set(Physarum((8, 8), 3, sensor_distance=2.0).stages.values()) == {"torch"}


# -- offline

SCRIPT = """
import json, sys
from dataclasses import asdict
from pinnfuse.kernels.physarum.offline import resources
print(json.dumps([asdict(r) for capability, flags in json.loads(sys.argv[1]) for r in resources(capability, **flags)]))
"""
BUILDS = [
    (80, {}),
    (90, {"deposit": 2, "BLOCK": 512, "SLOTS": True}),
    (100, {"deposit": 3, "SPECIES": 3, "BILINEAR": True, "OBSTACLES": True, "FOOD": True, "half": True}),
]


def test_compiles_without_a_card(tmp_path, root) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", SCRIPT, json.dumps(BUILDS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(done.stdout)
    assert len(rows) == 15
    assert all(row["stack"] <= 16 and 0 < row["registers"] <= 128 for row in rows), rows


# -- on a card


@pytest.mark.gpu
@pytest.mark.parametrize("deposits", ["count", "two-stage"])
def test_a_graph_replays_the_same_run(deposits, where) -> None:
    reference, ours = pair((200, 150), 3000, where, deposits=deposits)
    reference.run(311)
    assert_same(reference, ours.run(100).run(1).run(210))


@pytest.mark.gpu
def test_torch_stages_on_the_card_give_the_same_run(where) -> None:
    reference, ours = pair((100, 130), 2000, where, ours="torch", species=2, sensing="bilinear")
    assert_same(reference.run(30), ours.run(30))


@pytest.mark.gpu
def test_float_deposits_stay_close(where) -> None:
    """Same start, one step: sums of at most a few dozen equal terms, each addition rounds once."""
    reference, ours = pair((100, 130), 20000, where, deposits="float", deposit=0.1)
    reference.step()
    ours.step()
    assert_same(reference, ours, field_bound=40 * 2**-24)


@pytest.mark.gpu
def test_no_step_waits_for_the_host(where) -> None:
    sim = Physarum((128, 128), 4000, device=where)
    sim.run(2)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            sim.step()
        sim.set(speed=1.5)
        sim.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_two_launches_a_step_and_nothing_new_is_compiled(where) -> None:
    from pinnfuse.kernels import launching

    sim = Physarum((128, 128), 4000, device=where)
    sim.run(2)
    compiled = len(launching._compiled)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(10):
            sim.step()
        torch.cuda.synchronize()
    kernels = [e for e in profile.events() if "kernel" in e.name and e.device_type == torch.autograd.DeviceType.CUDA]
    assert len(kernels) == 20, [e.name for e in kernels]
    sim.set(speed=0.5, sensor_distance=3.0, steering="argmax", decay=0.5, diffusion=0.2, jitter=1.0)
    sim.run(4)
    assert len(launching._compiled) == compiled


@pytest.mark.gpu
def test_memory_does_not_grow_with_the_steps(where) -> None:
    sim = Physarum((256, 256), 10000, device=where)
    sim.run(300)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    sim.run(5000)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() == before
