"""What belongs to the points of one process, in a checkpoint that another number of processes reads."""

import types

import pytest
import torch

from pinnfuse import parallel
from pinnfuse.callbacks import Refinement
from pinnfuse.datamodules import CollocationDataModule
from pinnfuse.datamodules.collocation import CollocationStream
from pinnfuse.training import quiet
from pinnfuse.training.base import strategy_for
from pinnfuse.training.folder import _unique

FIXED = ["--training.point_weights", "attention", "--training.resample_every", "0"]
NAME = "loss.point_weights.interior.value"


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_weights_of_points_return_to_their_rank_and_a_new_one_gets_the_mean(start, rank, monkeypatch):
    module = start("run", *FIXED).module
    first, second = torch.full((64,), 0.5), torch.arange(64.0)
    checkpoint = {"state_dict": {NAME: first}, "pinnfuse": {"of_ranks": [{NAME: first}, {NAME: second}]}}
    monkeypatch.setattr(parallel, "rank", lambda: rank)
    module.on_load_checkpoint(checkpoint)
    mean = torch.full((64,), (0.5 + 31.5) / 2)
    assert torch.equal(checkpoint["state_dict"][NAME], [first, second, mean][rank])


def test_a_checkpoint_holds_the_weights_of_every_rank(start, monkeypatch):
    run = start("run", *FIXED, "--max-steps", "3")
    run.fit()
    seen = []
    monkeypatch.setattr(parallel, "gathered", lambda value, device=None: seen.append(value) or [value, value])
    checkpoint = {}
    run.module._trainer = run.trainer
    run.module.on_save_checkpoint(checkpoint)
    assert torch.equal(seen[0][NAME], run.module.state_dict()[NAME]) and len(checkpoint["pinnfuse"]["of_ranks"]) == 2


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_refined_points_return_to_their_rank_and_a_new_one_draws_its_own(start, heat, rank):
    module = start("run").module
    stream = CollocationStream(CollocationDataModule(heat), rank, torch.device("cpu"))
    own = stream.at(0)["interior"].points
    trainer = types.SimpleNamespace(global_rank=rank, global_step=0, train_dataloader=stream)
    module._trainer = trainer
    refinement = Refinement()
    kept = [torch.rand(64, 2, dtype=own.dtype), torch.rand(64, 2, dtype=own.dtype)]
    refinement.load_state_dict({"points": kept, "count": 64, "done": 0})
    refinement.on_train_start(trainer, module)
    assert torch.equal(stream.at(0)["interior"].points, [*kept, own][rank]) and stream.replaced


def test_who_writes(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    assert quiet.first_process()
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"):
        monkeypatch.setenv(name, "0")
    assert quiet.first_process()
    monkeypatch.setenv("NODE_RANK", "1")
    assert not quiet.first_process()


def test_the_name_of_a_run_is_that_of_the_job_where_another_starts_the_processes(monkeypatch):
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    assert len(_unique()) == len("20260101-000000")
    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    assert _unique() == "4711"
    monkeypatch.delenv("SLURM_JOB_ID")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    with pytest.raises(ValueError, match="--out: must be given under torchrun without --rdzv-id"):
        _unique()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "cavity")
    assert _unique() == "cavity"


def test_the_strategy_is_ours_where_lightning_would_take_ddp():
    from pinnfuse.models import DataParallel

    options = {"accelerator": "cpu", "devices": 1, "num_nodes": 1, "strategy": "auto"}
    assert strategy_for(options) == "auto"
    assert isinstance(strategy_for(options | {"devices": 2}), DataParallel)
    assert isinstance(strategy_for(options | {"strategy": "ddp"}), DataParallel)
    assert strategy_for(options | {"strategy": "ddp_spawn"}) == "ddp_spawn"


def test_a_grid_is_refused_where_every_process_would_draw_it(heat, monkeypatch):
    heat.training.sampler = "grid"
    data = CollocationDataModule(heat)
    data.train_dataloader()
    monkeypatch.setattr(parallel, "size", lambda: 2)
    with pytest.raises(ValueError, match="every process would draw the same grid"):
        data.train_dataloader()


def test_ranks_validate_parts_that_make_up_the_reference(heat, monkeypatch):
    data = CollocationDataModule(heat, validation_batch=50)
    whole = torch.cat([points for points, _ in data.val_dataloader()])
    monkeypatch.setattr(parallel, "size", lambda: 3)
    parts = []
    for rank in range(3):
        monkeypatch.setattr(parallel, "rank", lambda rank=rank: rank)
        parts += [points for points, _ in data.val_dataloader()]
    assert torch.equal(torch.cat(parts), whole) and len(parts) > 3
