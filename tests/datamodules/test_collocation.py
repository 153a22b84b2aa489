import dataclasses

import numpy as np
import pytest
import torch

from pinnfuse import problems
from pinnfuse.datamodules import CollocationDataModule
from pinnfuse.problems import TrainingSpec


@pytest.fixture
def problem():
    return problems.get("heat")


@pytest.fixture
def data(problem):
    return CollocationDataModule(
        problem, TrainingSpec(interior=64, boundary=16, hard=False, resample_every=3), seed=1, steps=10
    )


def flat(batch):
    return torch.cat([drawn.points.flatten() for drawn in batch.values()])


def test_every_term_has_its_points_in_its_region(data, problem):
    batch = data.draw(0)
    assert list(batch) == ["interior", *(c.name for c in problem.conditions)]
    assert batch["interior"].points.shape == (64, 2)
    for condition in problem.conditions:
        assert batch[condition.name].points.shape == (16, 2)
        assert condition.region.contains(batch[condition.name].points).all()
    assert data.points_per_step == 64 + 16 * len(problem.conditions)
    assert flat(batch).dtype == torch.float64


def test_conditions_that_hold_exactly_get_no_points(problem):
    hard = CollocationDataModule(problem, TrainingSpec(hard=True))
    assert set(hard.draw(0)) == {"interior"}


def test_a_draw_depends_on_seed_rank_and_index_alone(data, problem):
    other = CollocationDataModule(problem, dataclasses.replace(data.training), seed=2)
    first = flat(data.draw(4, rank=1))
    torch.rand(5)  # the global generator has no say
    assert torch.equal(first, flat(data.draw(4, rank=1)))
    for different in (data.draw(5, rank=1), data.draw(4, rank=0), other.draw(4, rank=1)):
        assert not torch.equal(first, flat(different))


@pytest.mark.parametrize(("every", "draws"), [(0, [0] * 10), (1, range(10)), (4, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2])])
def test_resampling(data, every, draws):
    data.training.resample_every = every
    batches = list(data.train_dataloader())
    assert len(batches) == len(data.train_dataloader()) == 10
    for batch, index in zip(batches, draws, strict=True):
        assert torch.equal(flat(batch), flat(data.draw(index)))
    assert (batches[0] is batches[1]) == (every != 1)  # what is kept is not copied


def test_stream_continues_from_its_state(data):
    whole = [flat(batch) for batch in data.train_dataloader()]
    stream = data.train_dataloader()
    iterator = iter(stream)
    for _ in range(4):
        next(iterator)
    resumed = data.train_dataloader()
    resumed.load_state_dict(stream.state_dict())
    rest = [flat(batch) for batch in resumed]
    assert len(rest) == 6 and all(torch.equal(a, b) for a, b in zip(rest, whole[4:], strict=True))


def test_seed_is_in_the_state(data, problem):
    other = CollocationDataModule(problem, data.training, seed=99)
    other.load_state_dict(data.state_dict())
    assert torch.equal(flat(other.draw(3)), flat(data.draw(3)))


def test_validation_batches_are_the_reference(problem):
    data = CollocationDataModule(problem, validation_batch=1000)
    batches = list(data.val_dataloader())
    points, values, mask = problem.evaluation_points()
    assert [len(b[0]) for b in batches[:-1]] == [1000] * (len(batches) - 1)
    np.testing.assert_array_equal(torch.cat([b[0] for b in batches]), points)
    np.testing.assert_array_equal(torch.cat([b[1] for b in batches]), np.where(mask, values, np.nan))
    assert all(b[1].dtype == torch.float64 for b in batches)


@pytest.mark.parametrize(("argument", "value"), [("steps", -1), ("validation_batch", 0)])
def test_mistakes_are_named(problem, argument, value):
    with pytest.raises(ValueError, match=f"`{argument}` must be at least"):
        CollocationDataModule(problem, **{argument: value})


@pytest.mark.gpu
def test_points_are_drawn_on_the_device(data):
    assert data.draw(0, device="cuda")["interior"].points.is_cuda
