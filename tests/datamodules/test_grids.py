import pytest
import torch

from pinnfuse import tasks
from pinnfuse.datamodules import GridDataModule
from pinnfuse.datamodules.grids import GridStream
from pinnfuse.tasks import SurrogateSpec, one_adam


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Eleven samples of Burgers whose values say which sample and level they are."""
    fields = torch.arange(11.0)[:, None, None, None] + torch.arange(6.0)[:, None, None] / 10 + torch.zeros(11, 6, 1, 16)
    file = tmp_path_factory.mktemp("grids") / "numbered.pt"
    torch.save({"fields": fields}, file)
    return file


@pytest.fixture
def make(path):
    task = tasks.get("burgers", points=16, levels=5, history=2, ahead=1, step=0.1)

    def made(seed=0, resident_bytes=None, **spec):
        spec = SurrogateSpec(**{"samples": 8, "held_out": 3, "batch": 4} | spec)
        return GridDataModule(task, spec, seed, path, steps=6, resident_bytes=resident_bytes)

    return made


def numbers(batch):
    """(sample, first level, level of the target) of every row."""
    return [(round(float(i[0].mean()), 1), round(float(t[0].mean()), 1)) for i, t in zip(*batch[:2], strict=True)]


def test_a_target_is_the_level_after_its_inputs(make):
    for batch in make().train_dataloader():
        assert batch.inputs.shape == (4, 2, 1, 16) and batch.targets.shape == (4, 1, 1, 16) and batch.labelled == 4
        for first, target in numbers(batch):
            assert target == pytest.approx(first + 0.2) and first % 1 < 0.35


def test_every_sample_comes_once_per_epoch(make):
    data = make()
    for epoch in range(3):
        rows = torch.cat([data.drawn(2 * epoch + k)[0] for k in range(2)])
        assert sorted(rows.tolist()) == list(range(8))
    assert data.drawn(0)[0].tolist() != data.drawn(2)[0].tolist()


def test_batches_depend_on_seed_rank_and_step_alone(make):
    one = [numbers(b) for b in make().train_dataloader()]
    assert one == [numbers(b) for b in make().train_dataloader()]
    assert one != [numbers(b) for b in make(seed=1).train_dataloader()]
    assert make().drawn(0, rank=1)[0].tolist() != make().drawn(0, rank=0)[0].tolist()


def test_prefetched_batches_are_those_of_resident_samples(make):
    resident, fetched = make().train_dataloader(), make(resident_bytes=0).train_dataloader()
    assert resident.resident
    fetched.resident = False  # on a CPU the samples are there anyway
    for a, b in zip(resident, fetched, strict=True):
        assert torch.equal(a.inputs, b.inputs) and torch.equal(a.targets, b.targets) and a.labelled == b.labelled


@pytest.mark.parametrize("prefetch", [False, True])
def test_a_resumed_stream_goes_on(make, prefetch):
    whole = [numbers(b) for b in make().train_dataloader()]
    first = make().train_dataloader()
    first.resident = not prefetch
    start = iter(first)
    seen = [numbers(next(start)) for _ in range(2)]
    second = make().train_dataloader()
    second.resident = not prefetch
    second.load_state_dict(first.state_dict())
    assert seen + [numbers(b) for b in second] == whole
    start.close()


@pytest.mark.parametrize(
    ("labelled", "loss", "expected"), [(0.25, "both", 1), (0.5, "both", 2), (1.0, "both", 4), (0.5, "physics", 0)]
)
def test_only_labelled_samples_meet_the_data_term(make, labelled, loss, expected):
    data = make(labelled=labelled, loss=loss)
    known = data.training.labelled_samples
    seen = set()
    for step in range(8):
        rows, _, count = data.drawn(step)
        assert count == expected and len(rows) == 4
        assert bool((rows[:count] < known).all())
        seen |= set(rows.tolist())
    assert seen == set(range(8))


def test_only_the_first_levels_of_unlabelled_samples_are_seen(make):
    """Later ones are solutions."""
    for data, first in ((make(labelled=0.25), True), (make(labelled=0.25, unlabelled_starts="any"), False)):
        drawn = [data.drawn(step) for step in range(8)]
        unseen = torch.cat([starts[count:] for _, starts, count in drawn])
        assert bool((unseen == 0).all()) is first
        assert bool((torch.cat([starts[:count] for _, starts, count in drawn]) > 0).any())


def test_held_out_windows_do_not_overlap(make):
    batches = list(make().val_dataloader())
    targets = sorted(t for b in batches for _, t in numbers(b))
    assert targets == pytest.approx([n + level / 10 for n in (8, 9, 10) for level in (2, 3, 4, 5)])


def test_double_precision(make):
    data = make(precision="float64")
    assert next(iter(data.train_dataloader())).inputs.dtype == torch.float64
    assert next(iter(data.val_dataloader())).targets.dtype == data.examples().dtype == torch.float64


def test_mirror_images_of_a_solution_are_solutions(monkeypatch, tmp_path):
    """Of Darcy's flow: all eight come, alike in inputs and targets, each without residual; the same ones every time."""
    monkeypatch.setenv("PINNFUSE_CACHE", str(tmp_path))
    task = tasks.get("darcy", points=9)
    spec = SurrogateSpec(samples=1, held_out=1, batch=1, phases=one_adam(60), mirrored=True, precision="float64")
    data = GridDataModule(task, spec)
    batches = list(data.train_dataloader())
    assert len({tuple(b.inputs.flatten().tolist()) for b in batches}) == 8
    physics = task.physics().double()
    for batch, again in zip(batches[:20], data.train_dataloader(), strict=False):
        assert torch.equal(batch.inputs, again.inputs) and torch.equal(batch.targets, again.targets)
        r = physics.residuals(task.residual(batch.inputs, batch.targets).fields)[..., 1:-1, 1:-1]
        assert float(r.abs().max()) < 1e-4  # samples are kept in float32
    with pytest.raises(ValueError, match="mirror images are solutions; 'burgers' is none"):
        GridDataModule(tasks.get("burgers"), spec)


@pytest.mark.gpu
def test_prefetch_on_a_card(make):
    data, device = make(), torch.device("cuda")
    samples = data.train
    fetched = GridStream(data, samples, 0, device)
    resident = GridStream(data, samples.joined(device, torch.float32), 0, device)
    assert resident.resident and not fetched.resident
    for a, b in zip(resident, fetched, strict=True):
        assert a.inputs.device.type == b.inputs.device.type == "cuda"
        assert torch.equal(a.inputs, b.inputs) and torch.equal(a.targets, b.targets)
