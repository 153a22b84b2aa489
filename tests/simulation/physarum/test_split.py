"""Physarum over processes: the bits of one process, whatever their number; files that any number reads; a dead one."""

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from pinnfuse.simulation import Physarum
from pinnfuse.simulation.physarum.split import SplitPhysarum, exchange, spawn
from pinnfuse.simulation.physarum.split.bands import Band, halo_for, reach

SHAPE, AGENTS = (57, 30), 700
CASES = {
    "torus": {},
    "walls, bilinear, species, maps": {
        "boundary": "walls",
        "sensing": "bilinear",
        "species": 2,
        "food": torch.rand(SHAPE, generator=torch.Generator().manual_seed(1)),
        "obstacles": torch.rand(SHAPE, generator=torch.Generator().manual_seed(2)) < 0.05,
    },
    "all start on an edge": {"spawn": "point", "dtype": torch.float16, "agents": 3000},
}


def pair(case: str | dict) -> tuple[SplitPhysarum, Physarum]:
    """The same colony, split and whole. A step reaches 6 rows at most: bands of 14 hold for one or two."""
    options = {"agents": AGENTS, "sensor_distance": 2.5, "speed": 1.0, "jitter": 8.0, "seed": 11, "backend": "torch"}
    options |= {"field": torch.rand(SHAPE, generator=torch.Generator().manual_seed(0))}
    options |= CASES[case] if isinstance(case, str) else case
    whole = Physarum(SHAPE, **options)
    return SplitPhysarum(whole, window=3), whole


def assert_same(split: SplitPhysarum, whole: Physarum) -> None:
    ours, truth = split.state_dict(), whole.state_dict()
    assert ours.keys() == truth.keys() and ours["settings"] == truth["settings"]
    order = truth["identity"].argsort()
    for name, value in truth.items():
        if torch.is_tensor(value):
            expected = value[order] if name in ("x", "y", "heading", "identity", "kind") else value
            assert torch.equal(ours[name], expected), name


def compare(case: str | dict) -> None:
    split, whole = pair(case)
    assert_same(split, whole)
    assert_same(split.run(7), whole.run(7))
    for sim in (split, whole):
        sim.set(speed=0.5, sensor_distance=3.0, decay=0.3)
    assert_same(split.run(9, sort_every=4), whole.run(9))


def compare_kernels() -> None:
    """In Triton's interpreter, which takes a second for what a card does in microseconds."""
    exchange.STEP = 16
    options = {"agents": 40, "species": 2, "sensor_distance": 2.0, "seed": 3}
    split, whole = (Physarum((20, 16), backend=backend, **options) for backend in ("triton", "torch"))
    assert_same(SplitPhysarum(split, window=1).run(3), whole.run(3))
    exchange.STEP = 1024


def run_all(device: torch.device, folder: Path, resume: Path | None) -> None:
    """What each process of a group does; leaves a file when all is well."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for case in CASES:
        compare(case)
    if ranks == 2:
        compare_kernels()
    split, whole = pair("torus")
    with pytest.raises(ValueError, match="a step would reach 17 rows far, and the halo has"):
        split.set(sensor_distance=15.0)
    if resume is not None:
        split = SplitPhysarum(Physarum.load(resume, backend="torch"))
        whole.run(5)
    split.run(5)
    split.save(folder / f"{ranks}.pt")
    assert_same(split, whole.run(5))
    (folder / f"{ranks}-{rank}").touch()
    if ranks == 2:  # the other one goes on, and waits for a neighbour that is gone
        if rank == 1:
            os._exit(3)
        split.run(1000)


def on_cards(device: torch.device, _: None) -> None:
    compare({"device": device, "backend": "auto", "agents": 20_000})


@pytest.mark.gpu
def test_two_cards() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two cards")
    spawn(on_cards, 2, None, device="cuda")


def test_one_process(monkeypatch) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        compare("torus")
    finally:
        dist.destroy_process_group()
    with pytest.raises(RuntimeError, match="no process group"):
        SplitPhysarum(Physarum((20, 20), 5))


def test_two_and_four_processes_and_one_that_dies(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PINNFUSE_INTERPRET", "1")
    with pytest.raises(RuntimeError, match="process 1 of 2 ended with status 3; the others were stopped"):
        spawn(run_all, 2, tmp_path, None)
    assert (tmp_path / "2-0").exists() and (tmp_path / "2-1").exists()
    whole = pair_of_one("torus").run(5)
    loaded = Physarum.load(tmp_path / "2.pt", backend="torch")
    assert torch.equal(loaded.field, whole.field) and torch.equal(loaded.positions, whole.positions)
    spawn(run_all, 4, tmp_path, tmp_path / "2.pt")
    assert all((tmp_path / f"4-{rank}").exists() for rank in range(4))
    assert torch.equal(Physarum.load(tmp_path / "4.pt").field, whole.run(5).field)


def pair_of_one(case: str) -> Physarum:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return pair(case)[1]
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("torus", [True, False])
@pytest.mark.parametrize(("height", "ranks"), [(10, 1), (57, 4), (7, 7), (16, 2)])
def test_bands_cover_the_domain_once(height, ranks, torus) -> None:
    bands = [Band(rank, ranks, height, torus, 1) for rank in range(ranks)]
    assert [row for b in bands for row in range(b.start, b.stop)] == list(range(height))
    for b in bands:
        for edge in (0, 1):
            other = b.neighbour(edge)
            assert (other is None) == (ranks == 1 or (not torus and b.rank == (0, ranks - 1)[edge]))
            assert other is None or bands[other].neighbour(1 - edge) == b.rank
        assert b.rows == b.size + b.beyond(0) + b.beyond(1)


def test_how_far_a_step_reaches() -> None:
    """Sensor distance, a row more between cells, speed, and one row of diffusion, each rounded up."""
    table = Physarum((50, 50), 1, sensor_distance=4.2, speed=1.3).colony.integers
    assert reach(table, bilinear=False) == (5 + 2 + 1, 2) and reach(table, bilinear=True) == (9, 2)
    assert halo_for(8, 2, window=6, height=40, ranks=2) == 16  # two steps fit into bands of 20
    assert halo_for(8, 2, window=6, height=40, ranks=1) == 0
    with pytest.raises(ValueError, match=r"bands of 9 rows .* 10 rows .* at most 3 processes"):
        halo_for(8, 2, window=6, height=38, ranks=4)
